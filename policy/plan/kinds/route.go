package kinds

import (
	"encoding/json"
	"fmt"
	"strings"

	"stele.dev/stele/schemas"
)

// A route is the way from the root of an object to a value. Its methods return longer routes and leave the route as it
// is.
type route struct {
	text  string
	names []string
}

// String returns the route as findings have it: spec.ports[].name, spec.labels[*], spec["a.b"].
func (r route) String() string { return r.text }

// steps returns the names, with [schemas.Any] for items and values of maps.
func (r route) steps() []string { return r.names }

func (r route) field(name string) route {
	text := r.text + "." + name
	switch {
	case name == "" || strings.ContainsAny(name, `.[]*"\ `):
		quoted, _ := json.Marshal(name) // a string always encodes
		text = r.text + "[" + string(quoted) + "]"
	case r.text == "":
		text = name
	}
	return route{text, r.and(name)}
}

func (r route) items() route { return route{r.text + "[]", r.and(schemas.Any)} }

func (r route) values() route { return route{r.text + "[*]", r.and(schemas.Any)} }

func (r route) and(step string) []string { return append(r.names[:len(r.names):len(r.names)], step) }

// index leads to one item of a list whose items differ by their index.
func (r route) index(i int) route {
	return route{fmt.Sprintf("%s[%d]", r.text, i), r.and(schemas.Any)}
}
