// What a caller writes, and what JSON comes of it.
package generated

import (
	"context"
	"encoding/json"
	"testing"

	"capd"
	"generated/prreviewer"
	"generated/shapes"
)

func use(ctx context.Context, client *capd.Client) (prreviewer.ReviewPrResponseVerdict, error) {
	params := prreviewer.ReviewPrRequest{PrUrl: "https://example.org/1", Severity: prreviewer.ReviewPrRequestSeverityHigh}
	answer, err := prreviewer.ReviewPr(ctx, client, params, capd.Key("a"))
	return answer.Verdict, err
}

func TestJSONStaysWhatItIs(t *testing.T) {
	for _, text := range []string{
		`{"label":"a","parent":null}`,
		`{"by-name":{"x":{"label":"c","parent":null}},"children":[{"label":"b","parent":{"label":"a","parent":null}}],"label":"a","parent":null}`,
	} {
		var tree shapes.TreeRequest
		same(t, text, &tree)
	}
	var request prreviewer.ReviewPrRequest
	same(t, `{"prUrl":"https://example.org/1","severity":"low"}`, &request)
	var event shapes.EventRequest
	same(t, `{"kind":"created","name":"a"}`, &event)
	_ = use
}

func same(t *testing.T, text string, value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	again, err := json.Marshal(value)
	if err != nil || string(again) != text {
		t.Fatalf("%s became %s: %v", text, again, err)
	}
}
