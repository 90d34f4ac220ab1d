package capd

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

type issue struct {
	Line     int     `json:"line" capd:"min=1"`
	Severity string  `json:"severity" capd:"enum=info|warning"`
	Fix      *string `json:"fix,omitempty"`
}

type review struct {
	Score  uint8            `json:"score"`
	Issues []issue          `json:"issues" capd:"maxItems=100"`
	Tags   map[string]bool  `json:"tags,omitempty"`
	At     time.Time        `json:"at"`
	Parent *review          `json:"parent,omitempty"`
	Ratio  float64          `json:"ratio"`
	More   json.RawMessage  `json:"more,omitempty"`
	Range  [2]int32         `json:"range"`
	Note   string           `json:"note" capd:"maxLength=5,description=short, please"`
	Hidden chan int         `json:"-"`
	Labels map[string][]any `json:"labels"`
}

func TestASchemaSaysWhatTheTypeTakes(t *testing.T) {
	schema, err := SchemaOf[review]()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(schema)
	const want = `{"$defs":{"review":{"additionalProperties":false,"properties":{` +
		`"at":{"format":"date-time","type":"string"},` +
		`"issues":{"items":{"additionalProperties":false,"properties":{"fix":{"type":"string"},"line":{"minimum":1,"type":"integer"},` +
		`"severity":{"enum":["info","warning"],"type":"string"}},"required":["line","severity"],"type":"object"},"maxItems":100,"type":"array"},` +
		`"labels":{"additionalProperties":{"items":{},"type":"array"},"type":"object"},` +
		`"more":{},"note":{"description":"short, please","maxLength":5,"type":"string"},` +
		`"parent":{"$ref":"#/$defs/review"},` +
		`"range":{"items":{"maximum":2147483647,"minimum":-2147483648,"type":"integer"},"maxItems":2,"minItems":2,"type":"array"},` +
		`"ratio":{"type":"number"},"score":{"maximum":255,"minimum":0,"type":"integer"},` +
		`"tags":{"additionalProperties":{"type":"boolean"},"type":"object"}},` +
		`"required":["score","issues","at","ratio","range","note","labels"],"type":"object"}},"$ref":"#/$defs/review"}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestATypeWithoutASchemaIsToldWithItsPlace(t *testing.T) {
	type inner struct{ Bad chan int }
	type params struct{ List []inner }
	capability := Func("com.acme.bad", "1.0.0", func(context.Context, params) (string, error) { return "", nil })
	agent, err := NewAgent(Address("/nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	var told *SchemaError
	if err := agent.Add(capability); !errors.As(err, &told) {
		t.Fatalf("got %v", err)
	}
	if want := "com.acme.bad:1.0.0: inputSchema.List[].Bad"; told.Place != want {
		t.Errorf("got %q, want %q", told.Place, want)
	}
	for _, tag := range []string{"mni=1", "min=one"} {
		if err := annotate(map[string]any{}, tag, "here"); err == nil {
			t.Errorf("the tag %q was taken", tag)
		}
	}
}

func TestAddressesOfOtherMachinesAreRefused(t *testing.T) {
	for _, address := range []string{"http://example.com:80", "https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/x"} {
		if _, err := NewClient(Address(address)); err == nil {
			t.Errorf("%s was taken", address)
		}
	}
	t.Setenv("CAPD_SOCKET", "")
	t.Setenv("CAPD_HTTP", "")
	t.Setenv("XDG_STATE_HOME", "/state")
	at, err := findAddress("", "")
	if err != nil || at.socket != "/state/capd/capd.sock" {
		t.Errorf("got %v, %v", at, err)
	}
}

func TestAKeyHasAtMost255Bytes(t *testing.T) {
	client, err := NewClient(Address("/nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "a\nb"} {
		if _, err := client.Call(context.Background(), "com.acme.echo", nil, Key(key)); err == nil || problem(err) != nil {
			t.Errorf("key %q: got %v", key, err)
		}
	}
}

func TestADeadlineOfTheContextEndsTheWait(t *testing.T) {
	client, err := NewClient(Address(t.TempDir() + "/none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var refused *Refused
	if _, err := client.Call(ctx, "com.acme.echo", nil); !errors.As(err, &refused) || refused.Code != 2002 {
		t.Errorf("got %v", err)
	}
}
