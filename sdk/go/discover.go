package capd

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
)

// CallFilter narrows [Client.Calls]; empty fields narrow nothing.
type CallFilter struct {
	// Role is "made" or "served".
	Role       string
	State      string
	Capability string
}

// Calls lists the calls that the sidecar knows, newest first, on both sides.
func (c *Client) Calls(ctx context.Context, filter CallFilter) ([]json.RawMessage, error) {
	return c.pages(ctx, "/v1/calls", "calls", "role", filter.Role, "state", filter.State, "capability", filter.Capability)
}

// Get tells what the sidecar knows of one call, on either side.
func (c *Client) Get(ctx context.Context, id string) (json.RawMessage, error) {
	return c.get(ctx, "/v1/calls/"+escape(id))
}

// CapabilityFilter narrows [Client.Capabilities]; empty fields narrow nothing.
type CapabilityFilter struct {
	Namespace string
	// Text is a part of the name or the description.
	Text string
}

// Capabilities lists what may be called.
func (c *Client) Capabilities(ctx context.Context, filter CapabilityFilter) ([]json.RawMessage, error) {
	return c.pages(ctx, "/v1/capabilities", "capabilities", "namespace", filter.Namespace, "q", filter.Text)
}

// Describe tells of one capability, with its schemas. id is name:version, or a name for its newest version.
func (c *Client) Describe(ctx context.Context, id string) (json.RawMessage, error) {
	return c.get(ctx, "/v1/capabilities/"+escape(id))
}

// Self tells of the sidecar: its DID, what it serves, and its peers.
func (c *Client) Self(ctx context.Context) (json.RawMessage, error) {
	return c.get(ctx, "/v1/self")
}

func (c *Client) get(ctx context.Context, target string) (json.RawMessage, error) {
	got, err := c.safe(ctx, &request{method: "GET", target: target, header: map[string]string{"Accept": acceptJSON}})
	if err != nil {
		return nil, err
	}
	if got.status >= 300 {
		return nil, problemOf(got, "")
	}
	if !json.Valid(got.body) {
		return nil, &OutcomeUnknown{Problem{Code: 1001, Message: "the sidecar's answer is not JSON", Status: got.status, Retry: "no"}}
	}
	return got.body, nil
}

// pages gives the items of all pages. query has names and values in turn.
func (c *Client) pages(ctx context.Context, path, member string, query ...string) ([]json.RawMessage, error) {
	items := []json.RawMessage{}
	cursor := ""
	for {
		target := path + queryOf(append(query, "cursor", cursor)...)
		page, err := c.get(ctx, target)
		if err != nil {
			return nil, err
		}
		var read map[string]json.RawMessage
		var more []json.RawMessage
		if err := json.Unmarshal(page, &read); err != nil {
			return nil, fmt.Errorf("capd: %s: %w", path, err)
		}
		if err := json.Unmarshal(read[member], &more); err != nil {
			return nil, fmt.Errorf("capd: %s: its %s: %w", path, strconv.Quote(member), err)
		}
		items = append(items, more...)
		cursor = ""
		if next, ok := read["next_cursor"]; ok {
			_ = json.Unmarshal(next, &cursor)
		}
		if cursor == "" {
			return items, nil
		}
	}
}

func queryOf(pairs ...string) string {
	text := ""
	for at := 0; at+1 < len(pairs); at += 2 {
		if pairs[at+1] != "" {
			text += "&" + pairs[at] + "=" + escape(pairs[at+1])
		}
	}
	if text == "" {
		return ""
	}
	return "?" + text[1:]
}
