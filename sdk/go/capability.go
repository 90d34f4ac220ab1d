package capd

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// outboxMax bounds the reports of one call that wait to be sent.
const outboxMax = 64

// Capability is one version of one capability: its declaration and its handler.
type Capability struct {
	declaration map[string]any
	handler     func(context.Context, *Invocation) (any, error)
	err         error
}

// ID is name:version.
func (c *Capability) ID() string {
	return fmt.Sprintf("%v:%v", c.declaration["name"], c.declaration["version"])
}

// Declaration is what is declared to the sidecar, as in capabilities.yaml.
func (c *Capability) Declaration() map[string]any { return c.declaration }

// CapabilityOption changes a declaration.
type CapabilityOption func(map[string]any)

// Description says what the capability does.
func Description(text string) CapabilityOption { return With("description", text) }

// Idempotent says that a call may safely run more than once.
func Idempotent() CapabilityOption { return With("idempotent", true) }

// IdempotentByID says that all providers of this version remember the ids of calls in one store that they share, and answer a
// call whose id they have seen with its first outcome. The key is Invocation.Caller and Invocation.ID.
func IdempotentByID() CapabilityOption { return With("idempotency", "by-id") }

// RunsAtMost is how long a call may take unless its caller says otherwise.
func RunsAtMost(limit time.Duration) CapabilityOption { return With("timeoutMs", limit.Milliseconds()) }

// Permissions are what a caller needs.
func Permissions(permissions ...string) CapabilityOption { return With("permissions", permissions) }

// InputSchema is a schema in place of the one that the type of the params has: a JSON value, or its text as json.RawMessage.
func InputSchema(schema any) CapabilityOption { return With("inputSchema", schema) }

// OutputSchema is the same of the result.
func OutputSchema(schema any) CapabilityOption { return With("outputSchema", schema) }

// With sets any key of a declaration as capabilities.yaml has it, such as rateLimit.
func With(key string, value any) CapabilityOption {
	return func(declaration map[string]any) { declaration[key] = value }
}

// Func serves a function. The schemas come from the types Req and Res: see [SchemaOf].
func Func[Req, Res any](name, version string, handler func(context.Context, Req) (Res, error), options ...CapabilityOption) *Capability {
	capability := Raw(name, version, func(ctx context.Context, call *Invocation) (any, error) {
		var params Req
		if err := unmarshal(call.Params, &params); err != nil {
			return nil, &CallError{Code: 4004, Message: "the params do not fit the handler's type"}
		}
		return handler(ctx, params)
	}, options...)
	for key, of := range map[string]reflect.Type{"inputSchema": reflect.TypeFor[Req](), "outputSchema": reflect.TypeFor[Res]()} {
		if _, given := capability.declaration[key]; given || capability.err != nil {
			continue
		}
		schema, err := schemaOf(of, capability.ID()+": "+key)
		if err != nil {
			capability.err = err
		} else if len(schema) > 0 {
			capability.declaration[key] = schema
		}
	}
	return capability
}

// Raw serves a function that takes its params as JSON, with schemas from options, or none.
func Raw(name, version string, handler func(context.Context, *Invocation) (any, error), options ...CapabilityOption) *Capability {
	declaration := map[string]any{"name": name, "version": version}
	for _, option := range options {
		option(declaration)
	}
	return &Capability{declaration: declaration, handler: handler}
}

// Invocation is one call, as its handler sees it. The context of the handler is done when the call is cancelled, when its
// time is over, and when the sidecar is gone.
type Invocation struct {
	// ID is the call's id.
	ID string
	// Capability is the id that was called.
	Capability string
	// Params as they came.
	Params json.RawMessage
	// Caller is the caller's DID.
	Caller string
	// Thread is the turn of a conversation; pass it on with calls of your own.
	Thread string
	// Traceparent is the W3C trace; pass it on with calls of your own.
	Traceparent string

	mutex    sync.Mutex
	isClosed bool
	outbox   chan posted
	done     <-chan struct{}
}

type posted struct {
	what string
	body any
}

type invocationKey struct{}

// InvocationOf gives the call that a handler's context is of; nil for any other context.
func InvocationOf(ctx context.Context) *Invocation {
	call, _ := ctx.Value(invocationKey{}).(*Invocation)
	return call
}

// Progress tells the caller how far the call is, from 0 to 100. Reports are sent in order.
func (i *Invocation) Progress(percent int) {
	i.report("progress", map[string]any{"progress_pct": percent})
}

// Status tells the caller what the call does, and when it will have its result; zero leaves that out.
func (i *Invocation) Status(text string, eta time.Duration) {
	body := map[string]any{}
	if text != "" {
		body["status_text"] = text
	}
	if eta > 0 {
		body["eta_ms"] = eta.Milliseconds()
	}
	i.report("progress", body)
}

// Ask tells the caller that the call waits for something that only the caller's side can do.
func (i *Invocation) Ask(prompt string) {
	i.report("input", map[string]any{"prompt": prompt})
}

func (i *Invocation) report(what string, body any) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.isClosed {
		return
	}
	select {
	case i.outbox <- posted{what, body}:
	case <-i.done:
	}
}

// close: the handler has returned, so a goroutine that it left behind has nothing to report to.
func (i *Invocation) close() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.isClosed = true
}
