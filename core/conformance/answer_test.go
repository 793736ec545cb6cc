package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// answer is what a peer said, decoded as it came.
type answer struct {
	code     int
	form     string // media type
	warnings []string
	body     any
}

// broken is the code of no answer at all.
const broken = 0

func (p *peer) do(t testing.TB, method, path string, header http.Header, body []byte) *answer {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == nil {
		q.Body = http.NoBody
	}
	maps.Copy(q.Header, header)
	r, err := p.client.Do(q)
	if err != nil {
		return &answer{code: broken, body: err.Error()}
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", p.name, method, path, err)
	}
	a := &answer{code: r.StatusCode, warnings: r.Header.Values("Warning")}
	a.form, _, _ = mime.ParseMediaType(r.Header.Get("Content-Type"))
	a.body = decoded(a.form, text)
	return a
}

func decoded(form string, text []byte) (body any) {
	if form == "application/vnd.kubernetes.protobuf" {
		if o, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil); err == nil {
			text = encode(o)
		}
	}
	if form == "application/yaml" {
		if translated, err := yaml.YAMLToJSON(text); err == nil {
			text = translated
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&body); err != nil || d.More() {
		return string(text)
	}
	return body
}

// field finds a value by its path, nil if there is none.
func field(v any, path ...string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

var (
	uid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moment   = regexp.MustCompile(`"?20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"?`)
	made     = regexp.MustCompile(`(made-\d+-g*|Bad_)[a-z0-9]{5}`) // and refused
	inside   = regexp.MustCompile(`resourceVersion\\*":\\*"\d+`)
	revision = regexp.MustCompile(`\d+$`)
	age      = regexp.MustCompile(`^\d+[smh](\d+[smh])?$`)
)

// seen writes down what an answer says about objects: later requests are made of that, for
// each peer of its own.
func (p *peer) seen(v any) {
	switch v := v.(type) {
	case map[string]any:
		if id, ok := v["uid"].(string); ok && uid.MatchString(id) {
			if _, known := p.uids[id]; !known {
				p.uids[id] = len(p.uids)
			}
		}
		if meta, ok := v["metadata"].(map[string]any); ok {
			if n, err := strconv.ParseUint(fmt.Sprint(meta["resourceVersion"]), 10, 64); err == nil && n < p.base+1_000_000 {
				p.newest = max(p.newest, n)
			}
			if id, ok := meta["uid"].(string); ok {
				if _, known := p.uids[id]; !known {
					p.uids[id] = len(p.uids)
				}
				name, _ := meta["name"].(string)
				if made, ok := meta["generateName"].(string); ok && strings.HasPrefix(name, made[:min(len(made), 58)]) && len(name) == min(len(made), 58)+5 && !slices.Contains(p.generated, name) {
					p.generated = append(p.generated, name)
				}
				if kind, ok := v["kind"].(string); ok && field(v, "apiVersion") != nil && kind != "PartialObjectMetadata" && kind != "Scale" {
					at := fmt.Sprintf("%s/%v/%s", kind, meta["namespace"], p.symbol(name))
					p.objects[at] = append(p.objects[at], v)
				}
			}
			if token, ok := meta["continue"].(string); ok && token != "" {
				p.token = token
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			p.seen(v[name])
		}
	case []any:
		for _, e := range v {
			p.seen(e)
		}
	}
}

// symbol is what a name stands for in both peers.
func (p *peer) symbol(name string) string {
	if i := slices.Index(p.generated, name); i >= 0 {
		return "«generated " + strconv.Itoa(i) + "»"
	}
	return name
}

// revision tells how far a revision is from the beginning.
func (p *peer) revision(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < p.base {
		return text
	}
	return fmt.Sprintf("«revision %d»", n-p.base)
}

// normal replaces by symbols what the peers decide for themselves: uids, revisions, times,
// generated names and tokens.
func (p *peer) normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			switch text, _ := e.(string); {
			case name == "resourceVersion" && text != "":
				out[name] = p.revision(text)
			case name == "continue" && text != "":
				out[name] = "«token»"
			default:
				out[name] = p.normal(e)
			}
			// These are sorted by their times, to the second, which the peers do not have in common.
			if entries, ok := out[name].([]any); ok && name == "managedFields" {
				slices.SortFunc(entries, func(a, b any) int { return bytes.Compare(encode(a), encode(b)) })
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = p.normal(e)
		}
		return out
	case string:
		return p.text(v)
	}
	return v
}

func (p *peer) text(s string) string {
	for i, name := range p.generated {
		s = strings.ReplaceAll(s, name, "«generated "+strconv.Itoa(i)+"»")
	}
	s = made.ReplaceAllString(s, "$1«made»")
	s = inside.ReplaceAllStringFunc(s, func(found string) string {
		return revision.ReplaceAllStringFunc(found, p.revision)
	})
	s = uid.ReplaceAllStringFunc(s, func(id string) string {
		i, known := p.uids[id]
		if !known { // told first by a message
			i = len(p.uids)
			p.uids[id] = i
		}
		return "«uid " + strconv.Itoa(i) + "»"
	})
	if age.MatchString(s) {
		return "«age»"
	}
	return moment.ReplaceAllStringFunc(s, func(m string) string {
		if strings.Contains(m, "2030-") {
			return m // the tests' own
		}
		return "«time»"
	})
}
