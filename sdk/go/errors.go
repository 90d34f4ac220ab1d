package capd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Problem is what every error of a call carries.
type Problem struct {
	// Code is the error code, such as 4004; 0 when the answer had none.
	Code int
	// Name is the code's name, such as SCHEMA_VIOLATION.
	Name string
	// Message says what happened, for people.
	Message string
	// Details has violations, findings, and whatever else the code carries; nil when there is nothing.
	Details json.RawMessage
	// CallID is the call's id, where one was given.
	CallID string
	// Retry says whether the same request may succeed later: "no", "yes" or "backoff".
	Retry string
	// Status is the HTTP status; 0 when no answer came.
	Status int
	// Key is the idempotency key of the request. The same key never runs the call twice.
	Key string

	cause error
}

// Error gives code, name, message and call.
func (p *Problem) Error() string {
	var text strings.Builder
	text.WriteString("capd: ")
	if p.Code != 0 {
		fmt.Fprintf(&text, "%d ", p.Code)
	}
	if p.Name != "" {
		fmt.Fprintf(&text, "%s: ", p.Name)
	}
	text.WriteString(p.Message)
	if p.CallID != "" {
		fmt.Fprintf(&text, " (call %s)", p.CallID)
	}
	return text.String()
}

// Unwrap gives the error of the connection or of the context that led to this one.
func (p *Problem) Unwrap() error { return p.cause }

// Refused: nothing was executed. Fix the cause and call again.
type Refused struct{ Problem }

// Failed: the call ran, and this error is its one result. Decide by Code.
type Failed struct{ Problem }

// OutcomeUnknown: nobody knows whether the call took effect. Look at the effect before you call again under another key.
type OutcomeUnknown struct{ Problem }

// Pending: the call may still run. Ask again with the same key, or wait with [Client.Result].
type Pending struct{ Problem }

// CallError is what a handler returns so that its caller gets a code, a message and details. Any other error reaches the
// caller as 5001, without its text.
type CallError struct {
	// Code is yours to choose among those that the protocol does not use: 6000 and above.
	Code    int
	Message string
	// Details may be any JSON value; nil leaves them out.
	Details any
}

func (e *CallError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

// SchemaError says which part of a Go type has no JSON Schema in the strict profile.
type SchemaError struct {
	// Place is the capability and the path to the field.
	Place  string
	Reason string
}

func (e *SchemaError) Error() string { return "capd: " + e.Place + ": " + e.Reason }

// asOutcome gives a problem the type of its outcome.
func asOutcome(outcome string, problem Problem) error {
	switch outcome {
	case "refused":
		return &Refused{problem}
	case "failed":
		return &Failed{problem}
	case "unknown":
		return &OutcomeUnknown{problem}
	case "pending":
		return &Pending{problem}
	}
	// Without a known outcome only a status that blames the request says that nothing was done.
	if problem.Status >= 300 && problem.Status < 500 {
		return &Refused{problem}
	}
	return &OutcomeUnknown{problem}
}

// document is RFC 9457, with the members of capd.
type document struct {
	Title   string          `json:"title"`
	Status  int             `json:"status"`
	Detail  string          `json:"detail"`
	Code    int             `json:"code"`
	Retry   string          `json:"retry"`
	Call    string          `json:"call"`
	Details json.RawMessage `json:"details"`
	Outcome string          `json:"outcome"`
}

// problemOf is the error that an answer with a status of 300 or above stands for.
func problemOf(reply *reply, key string) error {
	err := problemIn(reply.body, reply.status, reply.header.Get("Capd-Call"), key)
	if err != nil {
		return err
	}
	// Something in between has answered, or HTTP itself refused the request.
	message := fmt.Sprintf("HTTP status %d %s", reply.status, http.StatusText(reply.status))
	if text := strings.TrimSpace(string(reply.body[:min(len(reply.body), 200)])); text != "" {
		message += ": " + strings.ToValidUTF8(text, "�")
	}
	problem := Problem{Message: message, Status: reply.status, CallID: reply.header.Get("Capd-Call"), Key: key, Retry: "no"}
	return asOutcome("", problem)
}

// problemIn reads a problem document; nil when it is none.
func problemIn(body []byte, status int, call, key string) error {
	var read document
	if json.Unmarshal(body, &read) != nil {
		return nil
	}
	if status == 0 {
		status = read.Status
	}
	message := read.Detail
	if message == "" {
		message = read.Title
	}
	if message == "" {
		message = fmt.Sprintf("HTTP status %d", status)
	}
	if read.Call != "" {
		call = read.Call
	}
	if read.Retry == "" {
		read.Retry = "no"
	}
	if string(read.Details) == "null" {
		read.Details = nil
	}
	return asOutcome(read.Outcome, Problem{Code: read.Code, Name: read.Title, Message: message, Details: read.Details,
		CallID: call, Retry: read.Retry, Status: status, Key: key})
}

// problem gives the fields of an error of this package; nil for any other.
func problem(err error) *Problem {
	switch err := err.(type) {
	case *Refused:
		return &err.Problem
	case *Failed:
		return &err.Problem
	case *OutcomeUnknown:
		return &err.Problem
	case *Pending:
		return &err.Problem
	}
	return nil
}
