package capd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Answer is a result with what the sidecar says about it.
type Answer struct {
	// Value is the result.
	Value json.RawMessage
	// CallID is the call's id.
	CallID string
	// Capability is the id that was chosen, name:version.
	Capability string
	// Execution is how long the provider took.
	Execution time.Duration
	// Replayed: the recorded result of an earlier call with the same key was given.
	Replayed bool
	// Deprecated: the version that was chosen is deprecated.
	Deprecated bool
}

// Call calls a capability and waits for its result. When ctx is cancelled, the call is cancelled.
//
// name is a capability's name, or its id with a version. Numbers of an any in Res are [json.Number], with every digit.
//
// Errors: *[Refused], *[Failed], *[OutcomeUnknown], *[Pending]; that of ctx when it was cancelled; others when the params
// are not JSON or the result is no Res.
func Call[Req, Res any](ctx context.Context, client *Client, name string, req Req, options ...CallOption) (Res, error) {
	var result Res
	answer, err := client.Call(ctx, name, req, options...)
	if err != nil {
		return result, err
	}
	if err := unmarshal(answer.Value, &result); err != nil {
		return result, fmt.Errorf("capd: the result of %s (call %s) is no %T: %w", name, answer.CallID, result, err)
	}
	return result, nil
}

// Call is [Call] for results of any shape, with what the sidecar says about them.
func (c *Client) Call(ctx context.Context, name string, params any, options ...CallOption) (*Answer, error) {
	call, err := makeCall(ctx, name, params, options)
	if err != nil {
		return nil, err
	}
	got, err := c.answer(ctx, call, newPatience(call.timeout, c.wait), call.request(acceptJSON, ""), false)
	if err != nil {
		c.abandonIfCancelled(err, call)
		return nil, err
	}
	return call.result(got)
}

// Start starts a call and gives its id without waiting for its end.
func (c *Client) Start(ctx context.Context, name string, params any, options ...CallOption) (string, error) {
	call, err := makeCall(ctx, name, params, options)
	if err != nil {
		return "", err
	}
	got, err := c.answer(ctx, call, newPatience(call.timeout, c.wait), call.request(acceptJSON, "respond-async"), false)
	if err != nil {
		c.abandonIfCancelled(err, call)
		return "", err
	}
	if call.id == "" {
		return "", &OutcomeUnknown{Problem{Code: 1001, Message: "the sidecar's answer has no call id", Status: got.status, Key: call.key}}
	}
	return call.id, nil
}

// Result waits for the result of a call that was started before.
func (c *Client) Result(ctx context.Context, id string) (json.RawMessage, error) {
	stream := &Stream{client: c, ctx: ctx, call: &made{id: id}, patience: newPatience(0, c.wait), isSilent: true}
	stream.stage = resuming
	for stream.Next() {
	}
	stream.Close()
	return stream.Result(), stream.Err()
}

// Cancel cancels a call; false when it had ended before.
func (c *Client) Cancel(ctx context.Context, id string) (bool, error) {
	req := &request{method: "DELETE", target: "/v1/calls/" + escape(id), header: map[string]string{"Accept": acceptJSON}}
	got, err := c.safe(ctx, req)
	if err != nil {
		return false, err
	}
	if got.status == 409 {
		return false, nil
	}
	if got.status >= 300 {
		return false, problemOf(got, "")
	}
	return true, nil
}

func (c *Client) abandonIfCancelled(err error, call *made) {
	if errors.Is(err, context.Canceled) {
		c.abandon(call)
	}
}

func (m *made) result(got *reply) (*Answer, error) {
	if !json.Valid(got.body) {
		return nil, &OutcomeUnknown{Problem{Code: 1001, Message: "the sidecar's answer is not JSON", Status: got.status, CallID: m.id, Key: m.key}}
	}
	milliseconds, _ := strconv.ParseInt(got.header.Get("Capd-Execution-Ms"), 10, 64)
	return &Answer{
		Value: got.body, CallID: m.id, Capability: got.header.Get("Capd-Capability"),
		Execution: time.Duration(milliseconds) * time.Millisecond,
		Replayed:  got.header.Get("Capd-Replayed") == "true", Deprecated: got.header.Get("Deprecation") != "",
	}, nil
}
