package conformance_test

import (
	"net/http"
	"reflect"
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
	{"a refusal of an admission policy names the rule and its line, and all that refuse", excusePolicies},
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
			c.Body = rewrite(c.Body, func(s string) string { return own.ReplaceAllString(s, "") })
		}
	}},
	{"CBOR is served, which upstream has behind a feature gate", func(_ *request, _, steles *compared) {
		steles.Body = rewrite(steles.Body, func(s string) string { return strings.Replace(s, ", application/cbor", "", 1) })
	}},
	{"scales are served as Protocol Buffers as well", func(q *request, upstreams, steles *compared) {
		if field(upstreams.Body, "kind") == "Scale" && steles.Form == "application/vnd.kubernetes.protobuf" {
			upstreams.Form = steles.Form
		}
	}},
	{"a client's mistake is no internal error, and breaks no connection", func(_ *request, upstreams, steles *compared) {
		if (upstreams.Code == http.StatusInternalServerError || upstreams.Code == broken) && steles.Code >= 400 && steles.Code < 500 {
			*upstreams = *steles
		}
	}},
	{"methods that make no sense at a path are not allowed there, whatever they bring", func(_ *request, upstreams, steles *compared) {
		if steles.Code == http.StatusMethodNotAllowed && (upstreams.Code == http.StatusBadRequest || upstreams.Code == http.StatusUnsupportedMediaType) {
			*upstreams = *steles
		}
	}},
	{"a list without items is empty, and not null", func(_ *request, upstreams, steles *compared) {
		if list, ok := upstreams.Body.(map[string]any); ok && list["items"] == nil && isEmpty(field(steles.Body, "items")) {
			list["items"] = []any{}
		}
	}},
	{"resources of a group are found in the order of their names, and not in any", func(_ *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			if resources, ok := field(c.Body, "resources").([]any); ok {
				slices.SortFunc(resources, func(a, b any) int { return strings.Compare(field(a, "name").(string), field(b, "name").(string)) })
			}
		}
	}},
	{"a list that may be of the past is of now, and not of the kind's last change", func(q *request, upstreams, steles *compared) {
		if q.fresh {
			for _, c := range []*compared{upstreams, steles} {
				if meta, ok := field(c.Body, "metadata").(map[string]any); ok && (field(c.Body, "items") != nil || field(c.Body, "rows") != nil) {
					delete(meta, "resourceVersion")
				}
			}
		}
	}},
	{"a page behind which nothing is selected is the last one", func(_ *request, upstreams, steles *compared) {
		if field(steles.Body, "metadata", "continue") == nil && field(upstreams.Body, "metadata", "continue") != nil {
			delete(field(upstreams.Body, "metadata").(map[string]any), "continue")
		}
	}},
	{"an object of another version or kind is only refused for that", func(_ *request, upstreams, steles *compared) {
		causes, _ := field(upstreams.Body, "details", "causes").([]any)
		of, _ := field(steles.Body, "details", "causes").([]any)
		message, _ := field(upstreams.Body, "message").(string)
		said, _ := field(steles.Body, "message").(string)
		if strings.Contains(said, "does not match the expected API version") && strings.Contains(message, "strict decoding error") {
			*upstreams = *steles
		}
		if strings.Contains(message, "does not match the expected API version") {
			upstreams.Warnings = steles.Warnings
		}
		if len(causes) > 0 && len(of) > 0 && (field(of[0], "field") == "apiVersion" || field(of[0], "field") == "kind") {
			upstreams.Warnings = steles.Warnings
			field(upstreams.Body, "details").(map[string]any)["causes"] = causes[:min(len(causes), len(of))]
			upstreams.Body.(map[string]any)["message"] = field(steles.Body, "message")
		}
	}},
	{"what a patch has made of an object is said without managedFields", func(_ *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			c.Body = rewrite(c.Body, func(s string) string { return patched.ReplaceAllString(s, "") })
		}
	}},
	{"the error of a scale's path quotes no value, which may be a secret", func(_ *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			c.Body = rewrite(c.Body, func(s string) string { return accessor.ReplaceAllString(s, "${1}it$2") })
		}
	}},
	{"Scales of custom kinds can be applied", func(_ *request, upstreams, steles *compared) {
		if message, _ := field(upstreams.Body, "message").(string); upstreams.Code == http.StatusInternalServerError && strings.HasSuffix(message, "to an invalid group/version: autoscaling/v1") && field(steles.Body, "kind") == "Scale" {
			*upstreams = *steles
		}
	}},
	{"forms of scales are those of built-in kinds", func(_ *request, upstreams, steles *compared) {
		if upstreams.Code == http.StatusNotAcceptable && (steles.Code == http.StatusNotFound || field(steles.Body, "kind") == "Scale") {
			*upstreams = *steles
		}
	}},
	{"an object that goes with its last finalizer has the revision of that", func(q *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			meta, ok := field(c.Body, "metadata").(map[string]any)
			if ok && (q.method == http.MethodPut || q.method == http.MethodPatch) && meta["deletionTimestamp"] != nil && meta["finalizers"] == nil {
				delete(meta, "resourceVersion")
			}
		}
	}},
	{"a new object that has a resourceVersion is refused for that first, also in a dry run", func(_ *request, upstreams, steles *compared) {
		if text, _ := field(steles.Body, "message").(string); text == "resourceVersion should not be set on objects to be created" && upstreams.Code >= 400 && upstreams.Code < 500 {
			*upstreams = *steles
		}
	}},
	{"upstream says several things that are wrong in the order of a map, which is another one each time, and some of them more than once", func(_ *request, upstreams, steles *compared) {
		for _, c := range []*compared{upstreams, steles} {
			causes, ok := field(c.Body, "details", "causes").([]any)
			if !ok || len(causes) < 2 {
				continue
			}
			slices.SortStableFunc(causes, func(a, b any) int { return strings.Compare(string(encode(a)), string(encode(b))) })
			causes = slices.CompactFunc(causes, func(a, b any) bool { return reflect.DeepEqual(a, b) })
			field(c.Body, "details").(map[string]any)["causes"] = causes
			status := c.Body.(map[string]any)
			status["message"], _, _ = strings.Cut(status["message"].(string), ": [")
		}
	}},
}

var position = regexp.MustCompile(`:? \([a-z./]+\.(yaml|cue):\d+\)`)

var own = regexp.MustCompile(`((error decoding patch: )?json: cannot unmarshal \w+ into Go value of type .*|(\w+ in version "\w+" cannot be handled as a \w+|the object provided is unrecognized \(must be of type \w+\)): Object 'Kind' is missing in .*|no kind "\w+" is registered for version "\S+" in scheme "[^"]*"|decoded object cannot be converted to DeleteOptions|no kind is registered for the type .*|the API version in the data \(\S*\) does not match the expected API version \(autoscaling/v1\)|\w+ in version "v1" cannot be handled as a Scale: .*|(precondition|record) \(\d+\)|\(\*[\w.]+\)|StorageError: invalid object, .*AdditionalErrorMsg: )`)

var accessor = regexp.MustCompile(`( accessor error: ).*( is of the type )`)

var patched = regexp.MustCompile(`Invalid value: "\{.*\}": `)

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

func isEmpty(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) == 0
}
