package builtin

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"stele.dev/stele/schemas"
)

// eventFace returns the kind of events.k8s.io.
func eventFace(t *testing.T) schemas.Kind {
	t.Helper()
	kinds, err := Kinds()
	if err != nil {
		t.Fatal(err)
	}
	return kinds[slices.IndexFunc(kinds, func(k schemas.Kind) bool { return k.Resource() == "events.events.k8s.io" })]
}

func TestFieldsOfTheFaceAreUpstreams(t *testing.T) {
	compareFields(t, "Event", eventFace(t).Versions[0].Schema, reflect.TypeFor[eventsv1.Event](), true)
}

// Every field of a stored event has a field in the face, and vice versa.
func TestAFaceRenamesEveryField(t *testing.T) {
	names := func(k schemas.Kind) (names []string) {
		for _, f := range k.Versions[0].Schema.Struct.Fields {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		return names
	}
	face := FaceOf("events.events.k8s.io")
	stored, shown := map[string]any{}, map[string]any{}
	for _, name := range names(kindsByName(t)["Event"]) {
		stored[name] = name
	}
	for _, name := range names(eventFace(t)) {
		shown[name] = face.StoredPath(name)
	}
	if diff := cmp.Diff(shown, face.Show(stored)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(stored, face.Store(shown)); diff != "" {
		t.Error(diff)
	}
	for name := range stored {
		if got := face.StoredPath(face.ShownField(name) + ".x"); got != name+".x" {
			t.Errorf("%s.x is stored at %s", name, got)
		}
	}
	for _, path := range eventFace(t).Versions[0].SelectableFields {
		if stored := "." + face.StoredPath(path[1:]); !slices.Contains(kindsByName(t)["Event"].Versions[0].SelectableFields, stored) {
			t.Errorf("%s is stored at %s, which cannot be selected by", path, stored)
		}
	}
}

func TestEventsOfTheFaceAreStrict(t *testing.T) {
	const good = `{"metadata": {"namespace": "a"}, "regarding": {"namespace": "a"}, "eventTime": "2026-01-02T03:04:05.000006Z", "type": "Normal",
		"reportingController": "x/y", "reportingInstance": "i", "action": "act", "reason": "r", "note": "n", "deprecatedSource": {}}`
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, test := range []struct {
		name, object, old string
		want              []string
	}{
		{"a new event", good, ``, nil},
		{"without a time", with(`"eventTime": "2026-01-02T03:04:05.000006Z", `, ``), ``, []string{`eventTime: Required value`}},
		{"of another type", with(`Normal`, `Strange`), ``, []string{`type: Invalid value: "": has invalid value: Strange`}},
		{"by nobody", with(`"x/y"`, `""`), ``, []string{
			`reportingController: Required value`,
			`reportingController: Invalid value: "": name part must be non-empty`,
			`reportingController: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		}},
		{"with a series", with(`"note"`, `"series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:05Z"}, "note"`), ``, nil},
		{"with a series of one", with(`"note"`, `"series": {"count": 1}, "note"`), ``, []string{
			`series.count: Invalid value: "": should be at least 2`, `series.lastObservedTime: Required value`,
		}},
		{"with what is deprecated", with(`"deprecatedSource": {}`, `"deprecatedSource": {"host": "h"}, "deprecatedCount": 1, "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z", "deprecatedLastTimestamp": "2026-01-02T03:04:05Z"`), ``, []string{
			`firstTimestamp: Invalid value: "": needs to be unset`, `lastTimestamp: Invalid value: "": needs to be unset`,
			`count: Invalid value: "": needs to be unset`, `source: Invalid value: "": needs to be unset`,
		}},
		{"that goes on", with(`"note"`, `"series": {"count": 3, "lastObservedTime": "2026-01-02T03:04:05Z"}, "note"`), good, nil},
		{"with a time as precise as can be", with(`05.000006Z`, `05.000006789Z`), good, nil},
		{"that changes", with(`"note": "n"`, `"note": "m"`), good, []string{`message: Invalid value: "m": field is immutable`}},
		{"that changes its reporter", with(`"x/y"`, `"x/z"`), good, []string{`reportingController: Invalid value: "x/z": field is immutable`}},
		{"that changes its time", with(`05.000006Z`, `05.000007Z`), good, []string{`eventTime: Invalid value: "2026-01-02T03:04:05.000007Z": field is immutable`}},
		{"as a typed client writes what it has read", with(`"regarding": {`, `"related": {}, "deprecatedFirstTimestamp": "2026-01-02T02:04:05Z", "regarding": {`),
			with(`"regarding": {`, `"related": {"name": ""}, "deprecatedCount": 0, "deprecatedFirstTimestamp": "2026-01-02T03:04:05.5+01:00", "regarding": {`), nil},
		{"of another second", with(`"regarding": {`, `"deprecatedFirstTimestamp": "2026-01-02T02:04:06Z", "regarding": {`),
			with(`"regarding": {`, `"deprecatedFirstTimestamp": "2026-01-02T02:04:05Z", "regarding": {`), []string{`firstTimestamp: Invalid value: "2026-01-02T02:04:06Z": field is immutable`}},
		{"old, without its source", with(`"deprecatedSource": {}, `, ``), good, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var old map[string]any
			if test.old != "" {
				old = objectOf(t, test.old)
			}
			var got []string
			for _, e := range FaceOf("events.events.k8s.io").Validate(objectOf(t, test.object), old) {
				got = append(got, e.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
