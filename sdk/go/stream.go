package capd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
)

// Event is one event of a call: accepted, processing, progress, input_required, result, or one that a newer sidecar sends.
type Event struct {
	Kind string
	Data json.RawMessage
}

// Stream gives the events of one call. It is not for several goroutines at once.
//
//	stream := client.Stream(ctx, "com.acme.report", params)
//	defer stream.Close()
//	for stream.Next() {
//		fmt.Println(stream.Event().Kind)
//	}
//	if err := stream.Err(); err != nil { … }
//	report := stream.Result()
type Stream struct {
	client   *Client
	ctx      context.Context
	call     *made
	patience *patience
	stage    stage
	open     *events
	lastID   string
	isSilent bool // of a call that is waited for: it cannot be sent again

	event  Event
	result json.RawMessage
	err    error
}

type stage int

const (
	posting  stage = iota // the call is to be sent
	resuming              // the rest of its events is to be asked for
	reading               // a stream is open
	ended
)

// Stream calls a capability and gives its events as they come. A stream that breaks is resumed after the last event.
func (c *Client) Stream(ctx context.Context, name string, params any, options ...CallOption) *Stream {
	call, err := makeCall(ctx, name, params, options)
	if err != nil {
		return &Stream{client: c, err: err, stage: ended}
	}
	return &Stream{client: c, ctx: ctx, call: call, patience: newPatience(call.timeout, c.wait)}
}

// Next waits for the next event; false after the last one, and after an error.
func (s *Stream) Next() bool {
	for s.stage != ended {
		event, err := s.step()
		if err != nil {
			s.fail(err)
			return false
		}
		if event != nil {
			s.event = *event
			return true
		}
	}
	return false
}

// Event is the event that [Stream.Next] waited for.
func (s *Stream) Event() Event { return s.event }

// Result is the call's result, once Next has given false and there is no error.
func (s *Stream) Result() json.RawMessage { return s.result }

// Err is why there is no result; see [Call].
func (s *Stream) Err() error { return s.err }

// Close ends the stream. A call that has not ended runs on: cancel the context to cancel it.
func (s *Stream) Close() {
	if s.open != nil {
		s.open.end()
	}
	s.stage = ended
}

func (s *Stream) fail(err error) {
	if s.open != nil {
		s.open.end()
	}
	s.stage = ended
	s.err = s.call.annotate(err)
	if !s.isSilent {
		s.client.abandonIfCancelled(err, s.call)
	}
}

// step does one thing; an event when there is one.
func (s *Stream) step() (*Event, error) {
	switch s.stage {
	case posting:
		return nil, s.post()
	case resuming:
		return nil, s.resume()
	default:
		return s.read()
	}
}

func (s *Stream) post() error {
	s.lastID = ""
	got, err := s.client.answer(s.ctx, s.call, s.patience, s.call.request(acceptEvents, ""), true)
	if err != nil {
		return err
	}
	if got.stream == nil {
		answer, err := s.call.result(got)
		if err != nil {
			return err
		}
		s.stage, s.result = ended, answer.Value
		return nil
	}
	s.open, s.stage = got.stream, reading
	return nil
}

func (s *Stream) resume() error {
	if s.call.id == "" {
		s.stage = posting
		return nil
	}
	req := &request{method: "GET", target: "/v1/calls/" + escape(s.call.id) + "/events", header: map[string]string{"Accept": acceptEvents}}
	if s.lastID != "" {
		req.header["Last-Event-ID"] = s.lastID
	}
	got, err := s.client.transport.do(s.ctx, req, s.patience.deadline, true)
	if err != nil {
		return s.patience.afterFailure(s.ctx, err, req.written)
	}
	switch {
	case got.status == 404 && s.isSilent:
		return s.lookUp()
	case got.status == 404:
		s.stage = posting
		return nil
	case got.status >= 300:
		return s.patience.afterRefusal(s.ctx, got.header, problemOf(got, s.call.key))
	case got.stream == nil:
		return s.patience.afterFailure(s.ctx, &failure{broken, errors.New("the answer is no stream of events")}, true)
	}
	s.open, s.stage = got.stream, reading
	return nil
}

// lookUp asks for the answer of a call whose events the sidecar does not have: one that has restarted may still know how the
// call ended.
func (s *Stream) lookUp() error {
	var pauses backoff
	for {
		known, err := s.client.Get(s.ctx, s.call.id)
		if err != nil {
			return err
		}
		var call struct {
			State  string          `json:"state"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(known, &call); err != nil {
			return &OutcomeUnknown{Problem{Code: 1001, Message: "what the sidecar knows of the call is not readable: " + err.Error(), Retry: "no"}}
		}
		switch {
		case call.Result != nil:
			s.stage, s.result = ended, call.Result
			return nil
		case call.Error != nil:
			if err := problemIn(call.Error, 0, s.call.id, ""); err != nil {
				return err
			}
			return &OutcomeUnknown{Problem{Message: "an error that is no problem document", Retry: "no"}}
		case call.State == "finished" || call.State == "unknown":
			return &OutcomeUnknown{Problem{Code: 5902, Name: "INTERRUPTED", Retry: "no",
				Message: "the sidecar has no record of the call's answer; ask again with the call's key"}}
		}
		if err := s.patience.sleep(s.ctx, pauses.pause()); err != nil {
			return err
		}
	}
}

func (s *Stream) read() (*Event, error) {
	got, err := s.open.next(nil)
	if err != nil {
		s.open.end()
		s.stage = resuming
		if errors.Is(err, io.EOF) {
			err = &failure{broken, errors.New("the stream ended without a result")}
		} else {
			err = s.client.transport.failed(s.ctx, err, true)
		}
		return nil, s.patience.afterFailure(s.ctx, err, true)
	}
	s.patience.progressed()
	if got.id != "" {
		s.lastID = got.id
	}
	if !json.Valid(got.data) {
		return nil, &OutcomeUnknown{Problem{Code: 1001, Message: "an event of the stream is not JSON", Retry: "no"}}
	}
	if s.call.id == "" && got.kind == "accepted" {
		var accepted struct{ Call, ID string }
		_ = json.Unmarshal(got.data, &accepted)
		if s.call.id = accepted.Call; s.call.id == "" {
			s.call.id = accepted.ID
		}
	}
	switch got.kind {
	case "error":
		s.open.end()
		err := problemIn(got.data, 0, s.call.id, s.call.key)
		if err == nil {
			err = &OutcomeUnknown{Problem{Message: "an error that is no problem document", CallID: s.call.id, Key: s.call.key, Retry: "no"}}
		}
		return nil, err
	case "result":
		s.open.end()
		var last struct {
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(got.data, &last) != nil || last.Result == nil {
			return nil, &OutcomeUnknown{Problem{Code: 1001, Message: "the last event of the stream has no result", Retry: "no"}}
		}
		s.stage, s.result = ended, last.Result
	}
	return &Event{Kind: got.kind, Data: got.data}, nil
}
