package conformance_test

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// ofSlowRequests is the difference that occurs only if a request takes upstream's server more than half a second.
const ofSlowRequests = "upstream says of slow requests how long its layers took"

// intendedInRecords are the differences between the audit events of both servers that are meant to be; docs/AUDIT.md has
// them in words. An excuse changes the events of one request so that they are equal in what it is about.
var intendedInRecords = []struct {
	why    string
	excuse func(q *recorded, upstreams, steles []map[string]any) (want, got []map[string]any)
}{
	{"requests without valid credentials are counted, and not recorded one by one", func(q *recorded, want, got []map[string]any) (_, _ []map[string]any) {
		if q.code == http.StatusUnauthorized && len(want) == 1 && len(got) == 0 {
			return nil, nil
		}
		return want, got
	}},
	{"a panic is that of another request, and only the server's log has its text", func(q *recorded, want, got []map[string]any) (_, _ []map[string]any) {
		if q.stele == nil {
			return want, got
		}
		for _, e := range slices.Concat(want, got) {
			for _, name := range []string{"verb", "requestURI", "objectRef"} {
				delete(e, name)
			}
			if status, ok := e["responseStatus"].(map[string]any); ok {
				delete(status, "message")
				delete(status, "details")
			}
		}
		return want, got
	}},
	each("a list that does not go on has no token, where upstream has an empty one", func(_ *recorded, upstream, _ map[string]any) {
		if meta, ok := field(upstream, "responseObject", "metadata").(map[string]any); ok && meta["continue"] == "" {
			delete(meta, "continue")
		}
	}),
	{"a bulk delete has a line for each object, and no list of them", func(q *recorded, want, got []map[string]any) (_, _ []map[string]any) {
		if !strings.HasPrefix(q.name, "deletecollection") || len(got) <= 1 {
			return want, got
		}
		items, _ := field(want[len(want)-1], "responseObject", "items").([]any)
		var names, deleted []string
		for _, item := range items {
			names = append(names, fmt.Sprint(field(item, "metadata", "name")))
		}
		var first []map[string]any // of each stage
		for _, e := range got {
			if e["stage"] == "ResponseComplete" && e["responseObject"] != nil {
				deleted = append(deleted, fmt.Sprint(field(e, "responseObject", "metadata", "name")))
			}
			if len(first) == 0 || first[len(first)-1]["stage"] != e["stage"] {
				first = append(first, e)
			}
			delete(e["objectRef"].(map[string]any), "name")
		}
		slices.Sort(names)
		slices.Sort(deleted)
		if slices.Equal(names, deleted) {
			like(want, first, "responseObject")
		}
		return want, first
	}},
	each("annotations of stele.dev name rules, lines, the policy, stages and revisions", func(_ *recorded, _, stele map[string]any) {
		annotations, _ := stele["annotations"].(map[string]any)
		maps.DeleteFunc(annotations, func(name string, _ any) bool { return strings.HasPrefix(name, "stele.dev/") })
		if len(annotations) == 0 {
			delete(stele, "annotations")
		}
	}),
	each(ofSlowRequests, func(_ *recorded, upstream, _ map[string]any) {
		annotations, _ := upstream["annotations"].(map[string]any)
		maps.DeleteFunc(annotations, func(name string, _ any) bool { return strings.HasPrefix(name, "apiserver.latency.k8s.io/") })
	}),
	each("an authorizer gives its own reason, and one that allows may give none", func(_ *recorded, upstream, stele map[string]any) {
		const reason = "authorization.k8s.io/reason"
		theirs, _ := upstream["annotations"].(map[string]any)
		ours, _ := stele["annotations"].(map[string]any)
		given, _ := theirs[reason].(string)
		if said, _ := ours[reason].(string); theirs["authorization.k8s.io/decision"] == "allow" || given != "" && said != "" {
			delete(theirs, reason)
			delete(ours, reason)
		}
		for _, name := range []string{"responseStatus", "responseObject"} {
			if status, ok := upstream[name].(map[string]any); ok {
				said, _ := status["message"].(string)
				status["message"] = strings.TrimSuffix(said, ": "+given)
				if said == "" {
					delete(status, "message")
				}
			}
		}
	}),
	each("a refusal names the line of the policy", func(_ *recorded, _, stele map[string]any) {
		for _, name := range []string{"responseStatus", "responseObject"} {
			if stele[name] != nil {
				stele[name] = rewrite(stele[name], func(s string) string { return position.ReplaceAllString(s, "") })
			}
		}
	}),
	each("impersonation is not constrained", func(q *recorded, upstream, stele map[string]any) {
		delete(upstream, "authenticationMetadata")
		if q.name == "impersonation that is not allowed" && field(stele, "responseStatus", "reason") == field(upstream, "responseStatus", "reason") {
			for _, name := range []string{"responseStatus", "responseObject"} {
				if upstream[name] != nil && stele[name] != nil {
					upstream[name] = stele[name]
				}
			}
		}
	}),
	each("objectRef has the name, the UID and the resourceVersion that the object has got, and not those that were sent", func(_ *recorded, upstream, stele map[string]any) {
		theirs, _ := upstream["objectRef"].(map[string]any)
		ours, _ := stele["objectRef"].(map[string]any)
		if upstream["stage"] != "ResponseComplete" || (ours["uid"] == nil) != (ours["resourceVersion"] == nil) {
			return
		}
		if upstream["verb"] == "create" && theirs["name"] == nil && ours["uid"] != nil { // a generated name
			delete(ours, "name")
		}
		for _, name := range []string{"uid", "resourceVersion"} {
			delete(theirs, name)
			delete(ours, name)
		}
	}),
	each("a requestObject is what the client has sent, also if it could not be decoded", func(q *recorded, upstream, stele map[string]any) {
		sent, shown := q.sent(), stele["requestObject"]
		if meta, ok := field(sent, "metadata").(map[string]any); ok && meta["resourceVersion"] == "«revision»" {
			meta["resourceVersion"] = field(upstream, "requestObject", "metadata", "resourceVersion")
		}
		if sent != nil && reflect.DeepEqual(sent, shown) {
			delete(upstream, "requestObject")
			delete(stele, "requestObject")
		}
	}),
	each("a responseObject of a write is the object as it is stored", func(_ *recorded, upstream, stele map[string]any) {
		theirs, ours := upstream["responseObject"], stele["responseObject"]
		if field(ours, "kind") == "Widget" && field(ours, "apiVersion") == "example.com/v1" &&
			field(theirs, "apiVersion") == "example.com/v1beta1" &&
			reflect.DeepEqual(field(theirs, "spec", "replicas"), field(ours, "spec", "replicas")) {
			upstream["responseObject"] = ours
		}
	}),
	each("answers at paths are recorded like others, and a refusal is a Status also where upstream answers with text", func(q *recorded, upstream, stele map[string]any) {
		theirs, _ := upstream["responseStatus"].(map[string]any)
		ours, _ := stele["responseStatus"].(map[string]any)
		if theirs["status"] == nil && ours["status"] == "Failure" && reflect.DeepEqual(theirs["code"], ours["code"]) {
			stele["responseStatus"] = maps.Clone(theirs)
			delete(stele, "responseObject")
		}
		if upstream["objectRef"] == nil && upstream["responseObject"] == nil {
			delete(stele, "responseObject")
		}
	}),
	each("the responseStatus of a delete in a dry run has the code alone", func(q *recorded, upstream, stele map[string]any) {
		if q.name == "delete in a dry run" && field(stele, "responseStatus", "code") != nil {
			like([]map[string]any{upstream}, []map[string]any{stele}, "responseStatus")
		}
	}),
}

// each applies an excuse to the events of each stage that both servers have.
func each(why string, excuse func(q *recorded, upstream, stele map[string]any)) (intended struct {
	why    string
	excuse func(q *recorded, upstreams, steles []map[string]any) (want, got []map[string]any)
}) {
	intended.why = why
	intended.excuse = func(q *recorded, want, got []map[string]any) (_, _ []map[string]any) {
		for i := range min(len(want), len(got)) {
			if want[i]["stage"] == got[i]["stage"] {
				excuse(q, want[i], got[i])
			}
		}
		return want, got
	}
	return intended
}

// like gives events a field of others.
func like(from, to []map[string]any, name string) {
	for i := range min(len(from), len(to)) {
		if value, ok := from[i][name]; ok {
			to[i][name] = value
		} else {
			delete(to[i], name)
		}
	}
}
