package conformance_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// intended are the differences that are meant to be, each with its reason; docs/CONFORMANCE.md
// has them in words.
var intended = []struct {
	why    string
	excuse func(q *request, upstreams, steles *compared)
}{
	{"a refusal names the line of the policy that it is of", func(_ *request, _, steles *compared) {
		steles.Body = rewrite(steles.Body, func(s string) string { return position.ReplaceAllString(s, "") })
	}},
	{"a list that does not go on has no token, where upstream has an empty one", func(_ *request, upstreams, _ *compared) {
		if meta, ok := field(upstreams.Body, "metadata").(map[string]any); ok && meta["continue"] == "" {
			delete(meta, "continue")
		}
	}},
	{"where nothing is served a Status says so, and no plain text", func(_ *request, upstreams, steles *compared) {
		if text, ok := upstreams.Body.(string); ok && upstreams.Code == http.StatusNotFound && text == "404 page not found\n" && steles.Code == http.StatusNotFound {
			*upstreams = *steles
		}
	}},
	{"what upstream calls its own Go types and files is called otherwise", func(_ *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			c.Body = rewrite(c.Body, func(s string) string { return own.ReplaceAllString(s, "«type»") })
		}
	}},
	{"upstream says several things that are wrong in the order of a map, which is another one each time", func(_ *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			causes, ok := field(c.Body, "details", "causes").([]any)
			if !ok || len(causes) < 2 {
				continue
			}
			slices.SortStableFunc(causes, func(a, b any) int { return strings.Compare(string(encode(a)), string(encode(b))) })
			status := c.Body.(map[string]any)
			status["message"], _, _ = strings.Cut(status["message"].(string), ": [")
		}
	}},
}

var position = regexp.MustCompile(`:? \([a-z./]+\.(yaml|cue):\d+\)`)

var own = regexp.MustCompile(`(Go value of type \S+jsonPatchOp|Go value of type \[\]struct .*|no kind "\w+" is registered for version "\S+" in scheme "[^"]*"|decoded object cannot be converted to DeleteOptions)`)

// rewrite changes all strings of a value.
func rewrite(v any, change func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[name] = rewrite(e, change)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = rewrite(e, change)
		}
		return out
	case string:
		return change(v)
	}
	return v
}
