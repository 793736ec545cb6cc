package cost

import (
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// query has the parameters of a list or watch that its cost depends on. The first of equal names counts, as in the
// options of the request.
type query struct {
	limit    int
	revision string // resourceVersion
	match    string // resourceVersionMatch
	token    string // continue
	labels   string // labelSelector
	fields   string // fieldSelector
	initial  string // sendInitialEvents
}

// parse reads a query without allocating, unless it is escaped.
func parse(raw string) (q query) {
	var seen [7]bool
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		name, value, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(name, "%+") {
			name = unescape(name)
		}
		at := -1
		switch name {
		case "limit":
			at = 0
		case "resourceVersion":
			at = 1
		case "resourceVersionMatch":
			at = 2
		case "continue":
			at = 3
		case "labelSelector":
			at = 4
		case "fieldSelector":
			at = 5
		case "sendInitialEvents":
			at = 6
		}
		if at < 0 || seen[at] {
			continue
		}
		seen[at] = true
		if strings.ContainsAny(value, "%+") {
			value = unescape(value)
		}
		switch at {
		case 0:
			q.limit, _ = strconv.Atoi(value)
		case 1:
			q.revision = value
		case 2:
			q.match = value
		case 3:
			q.token = value
		case 4:
			q.labels = value
		case 5:
			q.fields = value
		case 6:
			q.initial = value
		}
	}
	return q
}

// unescape returns the text, or "" if it is not well escaped.
func unescape(text string) string {
	text, _ = url.QueryUnescape(text)
	return text
}

// Limit returns the limit in the query of a list; 0 for none.
func Limit(c *call.Call) int {
	q := parse(c.HTTP.URL.RawQuery)
	return q.page()
}

// Revision returns the resourceVersion in the query of a call; 0 if there is none, or if it is not a revision.
func Revision(c *call.Call) uint64 {
	q := parse(c.HTTP.URL.RawQuery)
	n, _ := strconv.ParseUint(q.revision, 10, 64)
	return n
}

// selects reports whether a list is by labels or fields.
func (q *query) selects() bool { return q.labels != "" || q.fields != "" }

// selection returns what a list of a kind selects in a namespace. ok is false if a selector is invalid.
func (q *query) selection(kind *policy.Kind, namespace string) (sel objects.Selection, ok bool) {
	l, err := labels.Parse(q.labels)
	if err != nil {
		return sel, false
	}
	f, err := fields.ParseSelector(q.fields)
	if err == nil && kind.Face != nil {
		f, err = f.Transform(func(field, value string) (string, string, error) { return kind.Face.StoredPath(field), value, nil })
	}
	if err != nil {
		return sel, false
	}
	return objects.Select(namespace, l, f), true
}

// newest reports whether no revision is given, or any will do.
func (q *query) newest() bool { return q.revision == "" || q.revision == "0" }

// page returns the limit; 0 for none.
func (q *query) page() int {
	if q.revision == "0" {
		return 0 // it is ignored then, as in kube-apiserver
	}
	return max(0, q.limit)
}

// past returns the revision that a list reads, and whether it is one of the past. It is 0 if it is not known.
func (q *query) past(c *call.Call) (revision uint64, past bool) {
	switch {
	case q.token != "":
		_, at, err := storage.DecodeContinue(q.token, read.KeyPrefix)
		if err == nil && at > 0 {
			return uint64(at), true
		}
	case q.match == "Exact" || q.match == "" && q.limit > 0 && !q.newest():
		if n, err := strconv.ParseUint(q.revision, 10, 64); err == nil {
			return n, true
		}
	}
	if m := c.Past.Moment; m != nil {
		return m.Revision, true
	}
	return 0, false
}
