package capd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"
)

// answerBytesMax bounds what is held of one answer. A sidecar's own limit on messages is below it.
const answerBytesMax = 256 << 20

// request is one HTTP request; written is set once its last byte was given to the operating system.
type request struct {
	method, target string
	header         map[string]string
	body           []byte
	written        bool
}

// reply is one HTTP response: its whole body, or a stream of events that is open.
type reply struct {
	status int
	header http.Header
	body   []byte
	stream *events
}

// failure is a request that has no whole answer.
type failure struct {
	kind failureKind
	err  error
}

type failureKind int

const (
	unreachable failureKind = iota // no connection: nothing was sent
	broken                         // the connection broke
	late                           // the deadline passed
)

func (f *failure) Error() string { return f.err.Error() }

// transport speaks HTTP/1.1 to one sidecar.
type transport struct {
	address address
	client  *http.Client
}

func newTransport(at address) *transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	dial := func(ctx context.Context, network, host string) (net.Conn, error) {
		if at.socket != "" {
			return dialer.DialContext(ctx, "unix", at.socket)
		}
		return dialer.DialContext(ctx, network, host)
	}
	return &transport{address: at, client: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 64, IdleConnTimeout: 60 * time.Second},
		// A sidecar has no reason to send its agent elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do sends a request. A zero deadline waits as long as ctx allows. With isStream an answer of events stays open.
//
// The error is a *failure, or that of ctx.
func (t *transport) do(ctx context.Context, req *request, deadline time.Time, isStream bool) (*reply, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !deadline.IsZero() {
		bounded, cancel = context.WithDeadline(ctx, deadline)
	} else if isStream {
		bounded, cancel = context.WithCancel(ctx)
	}
	connected := false
	traced := httptrace.WithClientTrace(bounded, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				req.written = true
			}
		},
	})
	made, err := http.NewRequestWithContext(traced, req.method, t.address.base()+req.target, bytes.NewReader(req.body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("capd: %w", err)
	}
	for name, value := range req.header {
		made.Header.Set(name, value)
	}
	if t.address.token != "" {
		made.Header.Set("Authorization", "Bearer "+t.address.token)
	}
	answer, err := t.client.Do(made)
	if err != nil {
		cancel()
		return nil, t.failed(ctx, err, connected)
	}
	got := &reply{status: answer.StatusCode, header: answer.Header}
	if isStream && answer.StatusCode < 300 && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		got.stream = newEvents(answer.Body, func() { answer.Body.Close(); cancel() })
		return got, nil
	}
	defer cancel()
	defer answer.Body.Close()
	got.body, err = io.ReadAll(io.LimitReader(answer.Body, answerBytesMax+1))
	if err == nil && len(got.body) > answerBytesMax {
		err = fmt.Errorf("the answer is larger than %d bytes", answerBytesMax)
	}
	if err != nil {
		return nil, t.failed(ctx, err, true)
	}
	return got, nil
}

// failed tells why there is no answer. What the user's own context ended is the user's error.
func (t *transport) failed(ctx context.Context, err error, connected bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The address and the method that http puts in front say nothing that the user does not know.
	var inner interface{ Unwrap() error }
	if errors.As(err, &inner) && inner.Unwrap() != nil && !errors.Is(err, context.DeadlineExceeded) {
		err = inner.Unwrap()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{late, errors.New("the sidecar did not answer in time")}
	case !connected:
		return &failure{unreachable, fmt.Errorf("cannot reach the sidecar at %s: %w", t.address, err)}
	default:
		return &failure{broken, fmt.Errorf("the connection to the sidecar broke: %w", err)}
	}
}
