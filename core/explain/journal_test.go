package explain_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"stele.dev/stele/core/explain"
)

// A journal keeps little of a refusal, whatever the client sent, in whichever field.
func TestAJournalKeepsLittle(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	e := &explain.Explanation{}
	fill(reflect.ValueOf(&e.Spec).Elem(), huge)
	stage := explain.Stage{Name: "validation", Verdict: explain.Refused, Rule: huge, Source: huge, Message: huge, Considered: []explain.Considered{{Rule: huge}}, Flow: &explain.Flow{Schema: "s", PriorityLevel: "l", Of: huge}}
	e.Status = explain.Status{Reason: "Invalid", Message: huge, Stages: []explain.Stage{stage}}
	e.Name = "id"
	j := explain.NewJournal(1)
	j.Add(e)
	text, err := json.Marshal(j.Find("id"))
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 32<<10 {
		t.Errorf("it keeps %d bytes of it: %.200s…", len(text), text)
	}
}

// fill sets all texts in a value, and one item in each list and map.
func fill(v reflect.Value, text string) {
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`"` + text + `"`))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case v.Kind() == reflect.Map:
		item := reflect.New(v.Type().Elem()).Elem()
		fill(item, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(text), item)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	}
}
