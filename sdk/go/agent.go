package capd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// silenceMax: the sidecar sends a comment every 10 s, so a stream that is silent for so long is dead.
	silenceMax = 35 * time.Second
	// drainTime is how long calls that run may go on after Serve was told to end.
	drainTime = 10 * time.Second
)

// Agent serves capabilities through the sidecar beside it. It opens no port: it asks the sidecar for its calls.
type Agent struct {
	// Concurrency is how many calls run at once; more wait in the sidecar. Zero is 64.
	Concurrency int
	// Log gets what goes wrong here; nil is [slog.Default].
	Log *slog.Logger

	transport    *transport
	capabilities map[string]*Capability
	order        []*Capability
}

// NewAgent finds the sidecar. It does not connect: a sidecar may start later.
func NewAgent(options ...ClientOption) (*Agent, error) {
	at, _, err := clientOptionsOf(options)
	if err != nil {
		return nil, err
	}
	return &Agent{transport: newTransport(at), capabilities: map[string]*Capability{}}, nil
}

// Serve serves capabilities until ctx is done: an [Agent] with nothing to set.
func Serve(ctx context.Context, capabilities ...*Capability) error {
	agent, err := NewAgent()
	if err != nil {
		return err
	}
	if err := agent.Add(capabilities...); err != nil {
		return err
	}
	return agent.Serve(ctx)
}

// Add adds what [Agent.Serve] is to serve.
//
// Errors: *[SchemaError] for a Go type that has no schema in the strict profile; two capabilities of one id.
func (a *Agent) Add(capabilities ...*Capability) error {
	for _, capability := range capabilities {
		if capability.err != nil {
			return capability.err
		}
		id := capability.ID()
		if a.capabilities[id] != nil {
			return fmt.Errorf("capd: %s is served twice", id)
		}
		a.capabilities[id] = capability
		a.order = append(a.order, capability)
	}
	return nil
}

// Serve declares everything that was added and answers calls until ctx is done. It waits for a sidecar that starts later,
// and declares again when the connection breaks. What runs when ctx is done has ten seconds to end.
//
// Errors: *[Refused] when the sidecar does not take the declaration; nil when ctx is done.
func (a *Agent) Serve(ctx context.Context) error {
	if len(a.order) == 0 {
		return errors.New("capd: the agent has no capability to serve")
	}
	declaration, err := a.declaration()
	if err != nil {
		return err
	}
	var pauses backoff
	for ctx.Err() == nil {
		pause, err := a.session(ctx, declaration, &pauses)
		if err != nil {
			return err
		}
		wait(ctx, pause)
	}
	return nil
}

func (a *Agent) declaration() ([]byte, error) {
	concurrency := a.Concurrency
	if concurrency == 0 {
		concurrency = 64
	}
	if concurrency < 1 {
		return nil, fmt.Errorf("capd: Concurrency is %d; accepted: 1 or more", concurrency)
	}
	declared := make([]map[string]any, 0, len(a.order))
	for _, capability := range a.order {
		declared = append(declared, capability.declaration)
	}
	return marshal(map[string]any{"capabilities": declared, "concurrency": concurrency})
}

// session is one stream, from its declaration to its end; the pause before the next one.
func (a *Agent) session(ctx context.Context, declaration []byte, pauses *backoff) (time.Duration, error) {
	// The stream outlives ctx for as long as calls drain.
	streaming, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	opening := context.AfterFunc(ctx, stop)
	defer opening()
	req := &request{method: "POST", target: "/v1/provide", body: declaration,
		header: map[string]string{"Content-Type": "application/json", "Accept": acceptEvents}}
	got, err := a.transport.do(streaming, req, time.Time{}, true)
	if err != nil {
		if ctx.Err() == nil {
			a.log().Warn("the sidecar cannot be reached", "error", err)
		}
		return pauses.pause(), nil
	}
	if got.status >= 300 {
		return a.refused(got, pauses)
	}
	if got.stream == nil {
		a.log().Error("the sidecar's answer to POST /v1/provide is no stream of events")
		return pauses.pause(), nil
	}
	if !opening() {
		got.stream.end()
		return 0, nil
	}
	defer got.stream.end()
	session := newSession(a, streaming)
	err = session.read(ctx, got.stream, pauses)
	if ctx.Err() != nil {
		session.drain(drainTime)
	} else {
		a.log().Warn("the session has ended", "error", err)
	}
	session.end()
	return pauses.pause(), nil
}

// refused: the declaration is sent again only where the sidecar says when.
func (a *Agent) refused(got *reply, pauses *backoff) (time.Duration, error) {
	err := problemOf(got, "")
	asked, ok := retryAfter(got.header)
	refused, isRefused := err.(*Refused)
	if isRefused && (!ok || refused.Retry == "no") {
		return 0, err
	}
	a.log().Warn("the sidecar does not take the declaration yet", "error", err)
	if ok {
		return asked, nil
	}
	return pauses.pause(), nil
}

func (a *Agent) log() *slog.Logger {
	if a.Log != nil {
		return a.Log
	}
	return slog.Default()
}

func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// session has the calls that run under one stream.
type session struct {
	agent *Agent
	ctx   context.Context
	id    string
	calls sync.WaitGroup

	mutex   sync.Mutex
	running map[string]context.CancelCauseFunc
}

func newSession(agent *Agent, ctx context.Context) *session {
	return &session{agent: agent, ctx: ctx, running: map[string]context.CancelCauseFunc{}}
}

// errCancelled is why a handler's context ends when its caller cancels.
var errCancelled = errors.New("capd: the call was cancelled")

// errLost is why it ends when nobody can take its result any more.
var errLost = errors.New("capd: the connection to the sidecar broke")

// read takes events until the stream ends, breaks or is silent for too long, or until ctx is done.
func (s *session) read(ctx context.Context, stream *events, pauses *backoff) error {
	silence := time.AfterFunc(silenceMax, stream.end)
	defer silence.Stop()
	arrived, ended := make(chan sse), make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			event, err := stream.next(func() { silence.Reset(silenceMax) })
			if err != nil {
				ended <- err
				return
			}
			select {
			case arrived <- event:
			case <-done:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case event := <-arrived:
			if err := s.handle(event); err != nil {
				return fmt.Errorf("the event %q is not readable: %w", event.kind, err)
			}
			if event.kind == "ready" {
				pauses.reset()
				s.agent.log().Info("serving", "session", s.id)
			}
		}
	}
}

// called is the data of an event `call`.
type called struct {
	ID          string          `json:"id"`
	Capability  string          `json:"capability"`
	Version     string          `json:"version"`
	Params      json.RawMessage `json:"params"`
	DeadlineMS  int64           `json:"deadline_ms"`
	Caller      string          `json:"caller"`
	Thread      string          `json:"thread"`
	Traceparent string          `json:"traceparent"`
}

// handle takes one event. Those of a newer sidecar are ignored.
func (s *session) handle(event sse) error {
	switch event.kind {
	case "ready":
		var ready struct {
			Session string `json:"session"`
		}
		err := json.Unmarshal(event.data, &ready)
		s.id = ready.Session
		return err
	case "call":
		var call called
		if err := json.Unmarshal(event.data, &call); err != nil {
			return err
		}
		s.begin(&call)
	case "cancel":
		var cancelled struct {
			ID     string `json:"id"`
			Reason string `json:"reason"`
		}
		if err := json.Unmarshal(event.data, &cancelled); err != nil {
			return err
		}
		s.mutex.Lock()
		cancel := s.running[cancelled.ID]
		s.mutex.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	}
	return nil
}

func (s *session) begin(call *called) {
	id := call.Capability
	if !strings.Contains(id, ":") && call.Version != "" {
		id += ":" + call.Version
	}
	if call.Params == nil {
		call.Params = json.RawMessage("null")
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.mutex.Lock()
	s.running[call.ID] = cancel
	s.mutex.Unlock()
	invocation := &Invocation{ID: call.ID, Capability: id, Params: call.Params, Caller: call.Caller, Thread: call.Thread,
		Traceparent: call.Traceparent, outbox: make(chan posted, outboxMax), done: ctx.Done()}
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		defer func() {
			s.mutex.Lock()
			delete(s.running, call.ID)
			s.mutex.Unlock()
			cancel(nil)
		}()
		s.run(ctx, invocation, time.Duration(call.DeadlineMS)*time.Millisecond)
	}()
}

// run has the handler answer, and posts what it says in order.
func (s *session) run(ctx context.Context, call *Invocation, limit time.Duration) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for message := range call.outbox {
			s.post(call.ID, message)
		}
	}()
	answer := s.answer(ctx, call, limit)
	// A call that was cancelled has its answer; one whose session is gone has nobody to take it.
	if answer != nil {
		call.outbox <- posted{"result", answer}
	}
	close(call.outbox)
	<-sent
}

// answer runs the handler; nil when the call was cancelled meanwhile.
func (s *session) answer(ctx context.Context, call *Invocation, limit time.Duration) any {
	capability := s.agent.capabilities[call.Capability]
	if capability == nil {
		return failed(4002, "this agent does not serve "+call.Capability, nil)
	}
	limited := context.WithValue(ctx, invocationKey{}, call)
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(limited, limit)
		defer cancel()
	}
	result, err := s.handled(limited, capability, call)
	call.close()
	if ctx.Err() != nil {
		return nil
	}
	var told *CallError
	switch {
	case err == nil:
		body, err := marshal(result)
		if err == nil {
			return map[string]any{"result": json.RawMessage(body)}
		}
		s.agent.log().Error("the result is not JSON", "call", call.ID, "capability", call.Capability, "error", err)
		return failed(5001, "the handler's result is not JSON", nil)
	case errors.As(err, &told):
		return failed(told.Code, told.Message, told.Details)
	default:
		// Its text may hold what no caller may see: it stays in this log.
		s.agent.log().Error("a handler failed", "call", call.ID, "capability", call.Capability, "error", err)
		return failed(5001, "the handler failed", nil)
	}
}

// handled turns a handler's panic into an error, so that one call does not end the others.
func (s *session) handled(ctx context.Context, capability *Capability, call *Invocation) (result any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	return capability.handler(ctx, call)
}

func failed(code int, message string, details any) any {
	body := map[string]any{"code": code, "message": message}
	if details != nil {
		body["details"] = details
	}
	return map[string]any{"error": body}
}

// post sends until an answer comes. Whatever the answer is, it settles the matter.
func (s *session) post(id string, message posted) {
	body, err := marshal(message.body)
	if err != nil {
		s.agent.log().Error("it cannot be sent", "what", message.what, "call", id, "error", err)
		return
	}
	req := &request{method: "POST", target: "/v1/provide/" + escape(s.id) + "/calls/" + escape(id) + "/" + message.what, body: body,
		header: map[string]string{"Content-Type": "application/json", "Accept": acceptJSON}}
	var pauses backoff
	for s.ctx.Err() == nil {
		got, err := s.agent.transport.do(s.ctx, req, time.Time{}, false)
		if err == nil {
			if got.status >= 300 && got.status != 409 {
				s.agent.log().Error("it was refused", "what", message.what, "call", id, "error", problemOf(got, ""))
			}
			return
		}
		wait(s.ctx, pauses.pause())
	}
}

// drain waits until nothing runs, for so long at most.
func (s *session) drain(limit time.Duration) {
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// end cancels what runs: nobody can take its results any more.
func (s *session) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, cancel := range s.running {
		cancel(errLost)
	}
}
