package policy_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy/reach"
)

// keptOf is how long the past of a resource is kept under a bundle with these additions.
func keptOf(t *testing.T, additions, group, resource string) string {
	t.Helper()
	kept := loaded(t, additions).Retention(schema.GroupResource{Group: group, Resource: resource})
	text := func(d time.Duration) string {
		if d == reach.Forever {
			return "all"
		}
		return d.String()
	}
	return fmt.Sprintf("%s, records %s, %d bytes", text(kept.History), text(kept.Records), kept.Bytes)
}

func TestHowLongThePastOfAKindIsKept(t *testing.T) {
	const inA, ours = "a.example.com", "widgets"
	kind := func(additions string) string { return widgets(widgetNames + ", " + widgetSchema + additions) }
	for name, tc := range map[string]struct{ bundle, group, resource, want string }{
		"one of which nothing is said":        {kind(""), inA, ours, "all, records all, 0 bytes"},
		"one that says it":                    {kind(`, retention: {history: "90d", records: "365d", bytes: "10Gi"}`), inA, ours, "2160h0m0s, records 8760h0m0s, 10737418240 bytes"},
		"one that keeps only the present":     {kind(`, retention: {history: "none", records: "1d"}`), inA, ours, "0s, records 24h0m0s, 0 bytes"},
		"one of which the bundle says it":     {"{\n" + kind("") + "\nhistory: retention: kinds: \"widgets.a.example.com\": history: \"2h\"\n}", inA, ours, "2h0m0s, records all, 0 bytes"},
		"one that follows the default":        {"{\n" + kind("") + "\nhistory: retention: default: {history: \"30d\", records: \"60d\"}\n}", inA, ours, "720h0m0s, records 1440h0m0s, 0 bytes"},
		"one that says a part of it":          {"{\n" + kind(`, retention: bytes: "1Mi"`) + "\nhistory: retention: default: {history: \"30d\", records: \"60d\"}\n}", inA, ours, "720h0m0s, records 1440h0m0s, 1048576 bytes"},
		"one that keeps more than records do": {"{\n" + kind(`, retention: history: "90d"`) + "\nhistory: retention: default: {history: \"30d\", records: \"60d\"}\n}", inA, ours, "2160h0m0s, records 2160h0m0s, 0 bytes"},
		"secrets, as sensitive kinds":         {`history: retention: {default: history: "30d", sensitive: history: "1h"}`, "", "secrets", "1h0m0s, records all, 0 bytes"},
		"a kind that is not there any more":   {`history: retention: default: history: "30d"`, inA, "gone", "720h0m0s, records all, 0 bytes"},
		"events":                              {`{}`, "", "events", "24h0m0s, records 168h0m0s, 0 bytes"},
		"leases":                              {`{}`, "coordination.k8s.io", "leases", "6h0m0s, records 24h0m0s, 0 bytes"},
		"leases, as the bundle has them":      {`history: retention: kinds: "leases.coordination.k8s.io": {history: "all", records: "all"}`, "coordination.k8s.io", "leases", "all, records all, 0 bytes"},
		"another built-in kind":               {`{}`, "", "configmaps", "all, records all, 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := keptOf(t, tc.bundle, tc.group, tc.resource); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestMistakesInRetention(t *testing.T) {
	const kindPath = widgetPath + ".retention"
	for name, tc := range map[string]struct{ bundle, want string }{
		"a duration":                        {widgets(widgetNames + ", " + widgetSchema + `, retention: history: §"forever"`), kindPath + `.history: "forever" is not one of "all", "none", a duration such as 12h or 90d`},
		"a size":                            {`history: retention: default: bytes: §"10GB"`, `bundle.history.retention.default.bytes: "10GB" is not a size such as 512Mi or 10Gi`},
		"records too short":                 {`history: retention: default: {history: "30d", §records: "7d"}`, `bundle.history.retention.default.records: the records of changes are kept for 7d, and the versions for 30d; keep records at least as long as history`},
		"a kind":                            {`history: retention: kinds: §secret: history: "5h"`, `bundle.history.retention.kinds.secret: there is no kind secret; did you mean "secrets"?`},
		"a duration of more than 292 years": {`history: retention: default: §history: "200000d"`, `bundle.history.retention.default.history: "200000d" is no duration, or one of more than 292 years; for no limit write "all"`},
		"a kind that has no objects":        {`history: retention: kinds: §"events.events.k8s.io": history: "5h"`, `bundle.history.retention.kinds."events.events.k8s.io": events.events.k8s.io shows the objects of events, and has no retention of its own; set that of "events"`},
		"a team, of a kind that the bundle has said it of": {
			"{\n" + widgets(widgetNames+", "+widgetSchema+`, §retention: history: "all"`) + "\nhistory: retention: kinds: \"widgets.a.example.com\": history: \"10h\"\n}",
			`a/kinds/widgets.a.example.com/retention: the retention of widgets.a.example.com is set for this bundle; that stands at bundle.cue:13: leave it out here`},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want) })
	}
}
