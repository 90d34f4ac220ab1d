// Command conformance is this SDK's driver: it performs the steps of the file that it is given; see sdk/conformance/README.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"capd"
)

type step struct {
	Do           string          `json:"do"`
	Name         string          `json:"name"`
	Params       json.RawMessage `json:"params"`
	Version      string          `json:"version"`
	TimeoutMS    int64           `json:"timeout_ms"`
	Key          *string         `json:"key"`
	Thread       string          `json:"thread"`
	Affinity     string          `json:"affinity"`
	BuiltAgainst *struct {
		Input  *capd.Schema `json:"input"`
		Output *capd.Schema `json:"output"`
	} `json:"built_against"`
	CancelWhen   string          `json:"cancel_when"`
	WaitMS       int64           `json:"wait_ms"`
	Call         string          `json:"call"`
	Role         string          `json:"role"`
	State        string          `json:"state"`
	Capability   string          `json:"capability"`
	Namespace    string          `json:"namespace"`
	Q            string          `json:"q"`
	ID           string          `json:"id"`
	Format       string          `json:"format"`
	Tool         string          `json:"tool"`
	Arguments    json.RawMessage `json:"arguments"`
	Capabilities []served        `json:"capabilities"`
	Concurrency  int             `json:"concurrency"`
	File         string          `json:"file"`
}

type served struct {
	Name         string                       `json:"name"`
	Version      string                       `json:"version"`
	Description  string                       `json:"description"`
	Idempotent   bool                         `json:"idempotent"`
	InputSchema  json.RawMessage              `json:"inputSchema"`
	OutputSchema json.RawMessage              `json:"outputSchema"`
	Handler      []map[string]json.RawMessage `json:"handler"`
}

type line map[string]any

type driver struct {
	client   *capd.Client
	tools    *capd.Tools
	provider *provider
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var steps []step
	check(json.Unmarshal(text, &steps))
	client, err := capd.NewClient()
	check(err)
	driver := &driver{client: client}
	for index, step := range steps {
		said := line{"step": index}
		driver.guarded(step, said)
		if len(said) > 1 {
			print(said)
		}
	}
}

// guarded performs a step, and cancels it when it says so.
func (d *driver) guarded(step step, said line) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if step.CancelWhen != "" {
		go func() {
			waitSignal(step.CancelWhen)
			cancel()
		}()
	}
	if err := d.perform(ctx, step, said); err != nil {
		said["error"] = errorLine(err)
	}
}

func (d *driver) perform(ctx context.Context, step step, said line) (err error) {
	var value any
	switch step.Do {
	case "client":
		d.client, err = capd.NewClient(capd.Wait(time.Duration(step.WaitMS) * time.Millisecond))
		return err
	case "call":
		var answer *capd.Answer
		if answer, err = d.client.Call(ctx, step.Name, params(step), options(step)...); err == nil {
			value = answer.Value
		}
	case "stream":
		stream := d.client.Stream(ctx, step.Name, params(step), options(step)...)
		defer stream.Close()
		events := []line{}
		for stream.Next() {
			events = append(events, line{"kind": stream.Event().Kind, "data": stream.Event().Data})
		}
		said["events"] = events
		value, err = stream.Result(), stream.Err()
	case "call_async":
		value, err = d.client.Start(ctx, step.Name, params(step), options(step)...)
	case "result":
		value, err = d.client.Result(ctx, step.Call)
	case "get":
		value, err = d.client.Get(ctx, step.Call)
	case "cancel":
		value, err = d.client.Cancel(ctx, step.Call)
	case "calls":
		value, err = d.client.Calls(ctx, capd.CallFilter{Role: step.Role, State: step.State, Capability: step.Capability})
	case "list":
		value, err = d.client.Capabilities(ctx, capd.CapabilityFilter{Namespace: step.Namespace, Text: step.Q})
	case "describe":
		value, err = d.client.Describe(ctx, step.ID)
	case "self":
		value, err = d.client.Self(ctx)
	case "tools":
		if d.tools, err = d.client.Tools(ctx, step.Format, step.Namespace); err == nil {
			value = d.tools.Definitions
		}
	case "call_tool":
		value, err = d.client.CallTool(ctx, d.tools, step.Tool, arguments(step), options(step)...)
	case "provide":
		d.provider = provide(step, said["step"].(int))
		return nil
	case "close":
		d.provider.stop()
		print(d.provider.ended())
		return nil
	case "ended":
		print(d.provider.ended())
		return nil
	case "wait":
		waitSignal(step.File)
		return nil
	case "signal":
		setSignal(step.File)
		return nil
	default:
		said["unsupported"] = "there is no step " + step.Do
		return nil
	}
	if err == nil {
		said["value"] = value
	}
	return err
}

func params(step step) any {
	if step.Params == nil {
		return nil
	}
	return step.Params
}

func arguments(step step) any {
	var text string
	if json.Unmarshal(step.Arguments, &text) == nil {
		return text
	}
	return step.Arguments
}

func options(step step) (options []capd.CallOption) {
	if step.Version != "" {
		options = append(options, capd.Version(step.Version))
	}
	if step.TimeoutMS != 0 {
		options = append(options, capd.Timeout(time.Duration(step.TimeoutMS)*time.Millisecond))
	}
	if step.Key != nil {
		options = append(options, capd.Key(*step.Key))
	}
	if step.Thread != "" {
		options = append(options, capd.Thread(step.Thread))
	}
	if step.Affinity != "" {
		options = append(options, capd.Affinity(step.Affinity))
	}
	if step.BuiltAgainst != nil {
		options = append(options, capd.BuiltAgainst(step.BuiltAgainst.Input, step.BuiltAgainst.Output))
	}
	return options
}

func errorLine(err error) line {
	var refused *capd.Refused
	var failed *capd.Failed
	var unknown *capd.OutcomeUnknown
	var pending *capd.Pending
	var problem capd.Problem
	said := line{}
	switch {
	case errors.As(err, &refused):
		said["kind"], problem = "Refused", refused.Problem
	case errors.As(err, &failed):
		said["kind"], problem = "Failed", failed.Problem
	case errors.As(err, &unknown):
		said["kind"], problem = "OutcomeUnknown", unknown.Problem
	case errors.As(err, &pending):
		said["kind"], problem = "Pending", pending.Problem
	case errors.Is(err, context.Canceled):
		return line{"kind": "Cancelled"}
	default:
		check(err)
	}
	said["code"], said["message"], said["retry"] = problem.Code, problem.Message, problem.Retry
	if problem.Details != nil {
		said["details"] = problem.Details
	}
	if problem.CallID != "" {
		said["call"] = problem.CallID
	}
	return said
}

// provider is the agent of a `provide` step.
type provider struct {
	step    int
	stop    context.CancelFunc
	served  chan error
	mutex   sync.Mutex
	handled []line
}

func provide(step step, index int) *provider {
	agent, err := capd.NewAgent()
	check(err)
	agent.Concurrency = step.Concurrency
	ctx, stop := context.WithCancel(context.Background())
	p := &provider{step: index, stop: stop, served: make(chan error, 1), handled: []line{}}
	for _, served := range step.Capabilities {
		options := []capd.CapabilityOption{}
		if served.Description != "" {
			options = append(options, capd.Description(served.Description))
		}
		if served.Idempotent {
			options = append(options, capd.Idempotent())
		}
		if served.InputSchema != nil {
			options = append(options, capd.InputSchema(served.InputSchema))
		}
		if served.OutputSchema != nil {
			options = append(options, capd.OutputSchema(served.OutputSchema))
		}
		check(agent.Add(capd.Raw(served.Name, served.Version, p.handler(served.Handler), options...)))
	}
	go func() { p.served <- agent.Serve(ctx) }()
	return p
}

// ended waits for the agent's end.
func (p *provider) ended() line {
	err := <-p.served
	p.mutex.Lock()
	defer p.mutex.Unlock()
	said := line{"step": p.step, "handled": p.handled}
	if err != nil {
		said["error"] = errorLine(err)
	}
	return said
}

func (p *provider) handler(script []map[string]json.RawMessage) func(context.Context, *capd.Invocation) (any, error) {
	return func(ctx context.Context, call *capd.Invocation) (any, error) {
		said := line{"id": call.ID, "capability": call.Capability, "params": call.Params, "caller": call.Caller, "ended": "failed"}
		p.mutex.Lock()
		p.handled = append(p.handled, said)
		p.mutex.Unlock()
		ended := func(how string) {
			p.mutex.Lock()
			said["ended"] = how
			p.mutex.Unlock()
		}
		for _, action := range script {
			for verb, argument := range action {
				switch verb {
				case "return":
					ended("returned")
					return argument, nil
				case "echo":
					ended("returned")
					return call.Params, nil
				case "wait_cancel":
					<-ctx.Done()
					ended("cancelled")
					setSignal("cancelled")
					return nil, ctx.Err()
				default:
					if err := perform(call, verb, argument); err != nil {
						return nil, err
					}
				}
			}
		}
		ended("returned")
		return nil, nil
	}
}

// perform is a verb that does not end the handler, but for the errors.
func perform(call *capd.Invocation, verb string, argument json.RawMessage) error {
	var text string
	_ = json.Unmarshal(argument, &text)
	switch verb {
	case "wait":
		waitSignal(text)
	case "signal":
		setSignal(text)
	case "crash":
		return errors.New(text)
	case "fail":
		var failure struct {
			Code    int
			Message string
			Details json.RawMessage
		}
		check(json.Unmarshal(argument, &failure))
		told := &capd.CallError{Code: failure.Code, Message: failure.Message}
		if failure.Details != nil {
			told.Details = failure.Details
		}
		return told
	case "progress":
		var body struct {
			Percent *int   `json:"progress_pct"`
			Text    string `json:"status_text"`
			ETA     int64  `json:"eta_ms"`
		}
		check(json.Unmarshal(argument, &body))
		if body.Percent != nil {
			call.Progress(*body.Percent)
		} else {
			call.Status(body.Text, time.Duration(body.ETA)*time.Millisecond)
		}
	case "input":
		var body struct{ Prompt string }
		check(json.Unmarshal(argument, &body))
		call.Ask(body.Prompt)
	}
	return nil
}

func print(said line) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(said))
	_, err := os.Stdout.Write(text.Bytes())
	check(err)
}

func signalFile(name string) string {
	return filepath.Join(os.Getenv("CAPD_CONFORMANCE_DIR"), name)
}

func setSignal(name string) { check(os.WriteFile(signalFile(name), nil, 0o600)) }

func waitSignal(name string) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(3 * time.Millisecond) {
		if _, err := os.Stat(signalFile(name)); err == nil {
			return
		}
		if time.Now().After(end) {
			check(fmt.Errorf("the signal %q never came", name))
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
