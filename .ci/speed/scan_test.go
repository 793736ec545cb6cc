package main

import (
	"fmt"
	"testing"
)

func TestListsAreScanned(t *testing.T) {
	const text = ` {"kind":"L","metadata":{"resourceVersion":"12","continue":"c\"]}"},"items":[{"metadata":{"name":"w-000003","resourceVersion":"7"},"a":["]",{}],"n":1} , {"metadata":{"resourceVersion":"9","name":"w-000010"}}],"n":null}`
	var seen []string
	version, next, err := scanList([]byte(text), func(item []byte) error {
		i, err := indexOf(item)
		v, err2 := versionOf(item)
		seen = append(seen, fmt.Sprint(i, v, err, err2))
		return nil
	})
	if got := fmt.Sprintf("%s %s %v %v", version, next, seen, err); got != `12 c"]} [3 7 <nil> <nil> 10 9 <nil> <nil>] <nil>` {
		t.Error(got)
	}
	for _, text := range []string{"", "[]", "{", `{"items"`, `{"items":{}}`, `{"items":[{]}`, `{}`, `{"a":"`} {
		if _, _, err := scanList([]byte(text), func([]byte) error { return nil }); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
}

func TestEventsAreSplit(t *testing.T) {
	kind, object, err := splitEvent([]byte(`{"type":"MODIFIED","object":{"a":"}"}}` + "\n"))
	if kind != "MODIFIED" || string(object) != `{"a":"}"}` || err != nil {
		t.Error(kind, string(object), err)
	}
	if _, _, err := splitEvent([]byte(`{"type":"MODIFIED"}`)); err == nil {
		t.Error("an event without an object")
	}
}
