package capd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Tools are tool definitions, ready to be given to a model's SDK, and the capability behind each name.
type Tools struct {
	// Definitions in the format that was asked for.
	Definitions []json.RawMessage `json:"tools"`
	// Names has the capability id of each tool name.
	Names map[string]string `json:"names"`
	// Wrapped names the tools whose params are no object: they are the member value of the tool's arguments.
	Wrapped []string `json:"wrapped"`
}

// Tools gives what may be called as tools of a language model. format is "openai", "anthropic" or "mcp"; an empty
// namespace is all.
func (c *Client) Tools(ctx context.Context, format, namespace string) (*Tools, error) {
	body, err := c.get(ctx, "/v1/tools"+queryOf("format", format, "namespace", namespace))
	if err != nil {
		return nil, err
	}
	tools := new(Tools)
	if err := json.Unmarshal(body, tools); err != nil {
		return nil, fmt.Errorf("capd: /v1/tools: %w", err)
	}
	return tools, nil
}

// Capability is the id behind a tool's name. Errors: *[Refused], 4002, for a name that is not among the definitions.
func (t *Tools) Capability(tool string) (string, error) {
	if id, ok := t.Names[tool]; ok {
		return id, nil
	}
	known := make([]string, 0, len(t.Names))
	for name := range t.Names {
		known = append(known, name)
	}
	sort.Strings(known)
	message := fmt.Sprintf("there is no tool %q; the tools are: %s", tool, strings.Join(known, ", "))
	return "", &Refused{Problem{Code: 4002, Name: "CAPABILITY_NOT_FOUND", Message: message, Retry: "no"}}
}

// CallTool calls the capability behind a tool's name with the arguments that the model gave: a value, or its JSON text as
// a string.
func (c *Client) CallTool(ctx context.Context, tools *Tools, tool string, arguments any, options ...CallOption) (json.RawMessage, error) {
	id, err := tools.Capability(tool)
	if err != nil {
		return nil, err
	}
	if text, ok := arguments.(string); ok {
		if text == "" {
			text = "{}"
		}
		if !json.Valid([]byte(text)) {
			return nil, &Refused{Problem{Code: 4001, Name: "BAD_REQUEST", Message: "the arguments are not JSON", Retry: "no"}}
		}
		arguments = json.RawMessage(text)
	}
	if slices.Contains(tools.Wrapped, tool) {
		if arguments, err = unwrapped(tool, arguments); err != nil {
			return nil, err
		}
	}
	answer, err := c.Call(ctx, id, arguments, options...)
	if err != nil {
		return nil, err
	}
	return answer.Value, nil
}

func unwrapped(tool string, arguments any) (any, error) {
	text, err := marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("capd: arguments of %s: %w", tool, err)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members["value"] == nil {
		return nil, &Refused{Problem{Code: 4001, Name: "BAD_REQUEST", Message: "the arguments of " + tool + " have no member \"value\"", Retry: "no"}}
	}
	return members["value"], nil
}
