package capd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

const (
	// ownKeyTTL is how long a key that the package has made is kept: as long as a call without a key is remembered.
	ownKeyTTL = time.Hour
	// ownKeyMargin is the same of a call with a timeout, on top of that.
	ownKeyMargin = 5 * time.Minute
)

// cancelTime is how long the user's code waits at most for a cancellation to reach the sidecar.
const cancelTime = 4 * time.Second

// Client calls capabilities through the sidecar beside this agent. It may be used by many goroutines at once.
type Client struct {
	transport *transport
	wait      time.Duration
}

// ClientOption changes a [Client] or an [Agent].
type ClientOption func(*clientOptions)

type clientOptions struct {
	address, token string
	wait           time.Duration
}

// Address names the sidecar: the path of its socket, or http://127.0.0.1:PORT.
func Address(address string) ClientOption {
	return func(o *clientOptions) { o.address = address }
}

// Token opens a sidecar's port on loopback.
func Token(token string) ClientOption {
	return func(o *clientOptions) { o.token = token }
}

// Wait is how long to wait for a sidecar that cannot be reached, in place of [DefaultWait].
func Wait(wait time.Duration) ClientOption {
	return func(o *clientOptions) { o.wait = wait }
}

func clientOptionsOf(options []ClientOption) (address, clientOptions, error) {
	chosen := clientOptions{wait: DefaultWait}
	for _, option := range options {
		option(&chosen)
	}
	at, err := findAddress(chosen.address, chosen.token)
	return at, chosen, err
}

// NewClient finds the sidecar. It does not connect: a sidecar may start later.
func NewClient(options ...ClientOption) (*Client, error) {
	at, chosen, err := clientOptionsOf(options)
	if err != nil {
		return nil, err
	}
	return &Client{transport: newTransport(at), wait: chosen.wait}, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.transport.client.CloseIdleConnections() }

// Schema is a schema document, byte for byte, and its hash.
type Schema struct {
	// SHA256 of JSON, in lower-case hexadecimal digits.
	SHA256 string
	JSON   string
}

// CallOption changes one call. Of two of a kind the later one holds.
type CallOption func(*callOptions)

type callOptions struct {
	version, key, thread, affinity, traceparent, to string
	hasKey                                          bool
	timeout, ttl                                    time.Duration
	builtAgainst                                    [2]*Schema
}

// Version is the range of versions that will do, such as ">=1.0.0 <2.0.0".
func Version(versions string) CallOption { return func(o *callOptions) { o.version = versions } }

// Timeout is how long the call may take. Without it, the deadline of the context, or what the capability declares.
func Timeout(limit time.Duration) CallOption { return func(o *callOptions) { o.timeout = limit } }

// Key is the idempotency key: the same key never runs a call twice. Without it, a new one is made.
func Key(key string) CallOption { return func(o *callOptions) { o.key, o.hasKey = key, true } }

// Thread is the turn of a conversation that the call belongs to.
func Thread(thread string) CallOption { return func(o *callOptions) { o.thread = thread } }

// Affinity keeps idempotent calls with the same text, 1 to 255 bytes, at one provider.
func Affinity(text string) CallOption { return func(o *callOptions) { o.affinity = text } }

// Traceparent is the W3C trace that the call belongs to.
func Traceparent(traceparent string) CallOption {
	return func(o *callOptions) { o.traceparent = traceparent }
}

// To names the provider's DID, where only that one will do.
func To(did string) CallOption { return func(o *callOptions) { o.to = did } }

// TTL is how long the sidecars remember the call and its key; a day unless set.
func TTL(ttl time.Duration) CallOption { return func(o *callOptions) { o.ttl = ttl } }

// BuiltAgainst names the schemas that the caller was generated from; nil is a side without a schema. A provider that has
// drifted from them is refused before anything is sent.
func BuiltAgainst(input, output *Schema) CallOption {
	return func(o *callOptions) { o.builtAgainst = [2]*Schema{input, output} }
}

// made is one call under its key: the same request however often it is sent.
type made struct {
	target       string
	body         []byte
	header       map[string]string
	key, id      string
	timeout      time.Duration
	builtAgainst [2]*Schema
	requests     []*request
}

func makeCall(ctx context.Context, name string, params any, options []CallOption) (*made, error) {
	var chosen callOptions
	for _, option := range options {
		option(&chosen)
	}
	if !chosen.hasKey {
		chosen.key = newKey()
	}
	deadline, hasDeadline := ctx.Deadline()
	if hasDeadline && chosen.timeout == 0 {
		chosen.timeout = max(time.Until(deadline), time.Millisecond)
	}
	if !chosen.hasKey && chosen.ttl == 0 {
		// Nobody else knows this key, and both sidecars keep each one: no longer than it can be of use.
		chosen.ttl = ownKeyTTL
		if chosen.timeout > 0 {
			chosen.ttl = chosen.timeout + ownKeyMargin
		}
	}
	if n := len(chosen.key); n < 1 || n > 255 {
		return nil, fmt.Errorf("capd: the idempotency key has %d bytes; accepted: 1 to 255", n)
	}
	body, err := marshal(params)
	if err != nil {
		return nil, fmt.Errorf("capd: params of %s: %w", name, err)
	}
	call := &made{body: body, key: chosen.key, timeout: chosen.timeout, builtAgainst: chosen.builtAgainst,
		header: map[string]string{"Content-Type": "application/json", "Idempotency-Key": chosen.key}}
	if chosen.thread != "" {
		call.header["Capd-Thread"] = chosen.thread
	}
	if chosen.affinity != "" {
		call.header["Capd-Affinity"] = chosen.affinity
	}
	if chosen.traceparent != "" {
		call.header["traceparent"] = chosen.traceparent
	}
	if chosen.ttl > 0 {
		call.header["Capd-Ttl"] = milliseconds(chosen.ttl)
	}
	for name, value := range call.header {
		if strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			return nil, fmt.Errorf("capd: %s: %q has control characters", name, value)
		}
	}
	if chosen.builtAgainst != [2]*Schema{} {
		call.header["Capd-Built-Against"] = hashOf(chosen.builtAgainst[0]) + ", " + hashOf(chosen.builtAgainst[1])
	}
	if call.timeout < 0 {
		return nil, fmt.Errorf("capd: the timeout %v is not above 0", call.timeout)
	}
	query := ""
	if chosen.version != "" {
		query = "&version=" + escape(chosen.version)
	}
	if call.timeout > 0 {
		query += "&timeout=" + milliseconds(call.timeout)
	}
	if chosen.to != "" {
		query += "&to=" + escape(chosen.to)
	}
	call.target = "/v1/call/" + strings.ReplaceAll(escape(name), "%3A", ":")
	if query != "" {
		call.target += "?" + query[1:]
	}
	return call, nil
}

func milliseconds(duration time.Duration) string {
	return fmt.Sprintf("%dms", max(1, duration.Round(time.Millisecond).Milliseconds()))
}

func hashOf(schema *Schema) string {
	if schema == nil {
		return "-"
	}
	return schema.SHA256
}

func newKey() string {
	var bytes [16]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		panic(fmt.Sprintf("capd: the system has no randomness: %v", err))
	}
	return hex.EncodeToString(bytes[:])
}

func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

func (m *made) request(accept, prefer string) *request {
	header := map[string]string{"Accept": accept}
	for name, value := range m.header {
		header[name] = value
	}
	if prefer != "" {
		header["Prefer"] = prefer
	}
	made := &request{method: "POST", target: m.target, header: header, body: m.body}
	m.requests = append(m.requests, made)
	return made
}

func (m *made) wasSent() bool {
	for _, request := range m.requests {
		if request.written {
			return true
		}
	}
	return false
}

// noteID keeps the id that an answer tells.
func (m *made) noteID(reply *reply) {
	if id := reply.header.Get("Capd-Call"); id != "" {
		m.id = id
	}
	location := reply.header.Get("Location")
	if at := strings.LastIndex(location, "/"); m.id == "" && strings.Contains(location, "/v1/calls/") {
		m.id = location[at+1:]
	}
}

// annotate puts key and id into an error that was made here.
func (m *made) annotate(err error) error {
	if known := problem(err); known != nil {
		if known.Key == "" {
			known.Key = m.key
		}
		if known.CallID == "" {
			known.CallID = m.id
		}
	}
	return err
}

const (
	acceptJSON   = "application/json"
	acceptEvents = "text/event-stream"
)

// answer sends a call until there is an answer that is a result, or a stream. Whatever is sent again has the same key.
func (c *Client) answer(ctx context.Context, call *made, patience *patience, req *request, isStream bool) (*reply, error) {
	wasPut := false
	for {
		got, err := c.transport.do(ctx, req, patience.deadline, isStream)
		if err != nil {
			if err := patience.afterFailure(ctx, err, req.written); err != nil {
				return nil, call.annotate(err)
			}
			continue
		}
		if got.status < 300 {
			call.noteID(got)
			return got, nil
		}
		if got.status == 428 && !wasPut && call.builtAgainst != [2]*Schema{} {
			wasPut = true
			if err := c.putSchemas(ctx, call, patience); err != nil {
				return nil, err
			}
			continue
		}
		patience.wasSent = true
		if err := patience.afterRefusal(ctx, got.header, problemOf(got, call.key)); err != nil {
			return nil, err
		}
	}
}

func (c *Client) putSchemas(ctx context.Context, call *made, patience *patience) error {
	for at, schema := range call.builtAgainst {
		if schema == nil || at == 1 && call.builtAgainst[0] != nil && *call.builtAgainst[0] == *schema {
			continue
		}
		req := &request{method: "PUT", target: "/v1/schemas/" + escape(schema.SHA256), body: []byte(schema.JSON),
			header: map[string]string{"Content-Type": "application/json", "Accept": acceptJSON}}
		for {
			got, err := c.transport.do(ctx, req, patience.deadline, false)
			if err != nil {
				err = patience.afterFailure(ctx, err, false)
			} else if got.status < 300 {
				break
			} else {
				err = patience.afterRefusal(ctx, got.header, problemOf(got, ""))
			}
			if err != nil {
				return call.annotate(err)
			}
		}
	}
	return nil
}

// safe sends a request that may be repeated: reading, cancelling.
func (c *Client) safe(ctx context.Context, req *request) (*reply, error) {
	patience := newPatience(0, c.wait)
	for {
		got, err := c.transport.do(ctx, req, time.Now().Add(c.wait), false)
		if err != nil {
			// To repeat it is safe, so nothing about its outcome is in doubt.
			err = patience.afterFailure(ctx, err, false)
		} else if got.status == 429 || got.status == 503 {
			err = patience.afterRefusal(ctx, got.header, problemOf(got, ""))
		} else {
			return got, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// abandon tells the sidecar that nobody waits for a call, if it has it. It never starts one that was not sent.
func (c *Client) abandon(call *made) {
	if !call.wasSent() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
	defer cancel()
	if call.id == "" {
		// The same key joins the call, and tells its id without waiting for its end.
		got, err := c.transport.do(ctx, call.request(acceptJSON, "respond-async"), time.Time{}, false)
		if err != nil || got.status != 202 {
			return
		}
		call.noteID(got)
	}
	if call.id != "" {
		// Whether it was cancelled in time changes nothing for a caller that has gone.
		_, _ = c.Cancel(ctx, call.id)
	}
}

// marshal writes JSON without escaping what needs no escape.
func marshal(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// unmarshal reads one JSON value; numbers in an any keep every digit, as json.Number.
func unmarshal(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return fmt.Errorf("more than one JSON value")
	}
	return nil
}
