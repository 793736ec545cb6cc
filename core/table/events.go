package table

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"stele.dev/stele/policy"
)

// isEvent tells whether objects are events, of either group: their columns take more than
// paths to compute.
func isEvent(v *policy.Version) bool {
	return v.Kind != nil && v.Kind.Builtin && v.Kind.Kind.Kind == "Event"
}

var eventHeaders = func() []metav1.TableColumnDefinition {
	docs, meta := corev1.Event{}.SwaggerDoc(), metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Last Seen", Type: "string", Description: docs["lastTimestamp"]},
		{Name: "Type", Type: "string", Description: docs["type"]},
		{Name: "Reason", Type: "string", Description: docs["reason"]},
		{Name: "Object", Type: "string", Description: docs["involvedObject"]},
		{Name: "Subobject", Type: "string", Priority: 1, Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"]},
		{Name: "Source", Type: "string", Priority: 1, Description: docs["source"]},
		{Name: "Message", Type: "string", Description: docs["message"]},
		{Name: "First Seen", Type: "string", Priority: 1, Description: docs["firstTimestamp"]},
		{Name: "Count", Type: "string", Priority: 1, Description: docs["count"]},
		{Name: "Name", Type: "string", Priority: 1, Description: meta["name"]},
	}
}()

// eventRow is the row of an event. Those that say when they were observed do not say when
// they were recorded, and one that stands for a series was last seen when that was.
func eventRow(object []byte, now time.Time) []any {
	event := gjson.ParseBytes(object)
	get := func(path, inEventsGroup string) gjson.Result {
		if v := event.Get(path); v.Exists() {
			return v
		}
		return event.Get(inEventsGroup)
	}
	since := func(v gjson.Result) string {
		at, err := time.Parse(time.RFC3339, v.String())
		if err != nil {
			return "<unknown>"
		}
		return duration.HumanDuration(now.Sub(at))
	}
	first := get("firstTimestamp", "deprecatedFirstTimestamp")
	if first.String() == "" {
		first = event.Get("eventTime")
	}
	last := get("lastTimestamp", "deprecatedLastTimestamp")
	if last.String() == "" {
		last = first
	}
	count := get("count", "deprecatedCount").Int()
	if series := event.Get("series"); series.IsObject() {
		last, count = series.Get("lastObservedTime"), series.Get("count").Int()
	} else if count == 0 {
		count = 1
	}
	about, source := get("involvedObject", "regarding"), get("source", "deprecatedSource")
	target := strings.ToLower(about.Get("kind").String())
	if name := about.Get("name").String(); name != "" {
		target += "/" + name
	}
	reporter := source.Get("component").String()
	if reporter == "" {
		reporter = get("reportingComponent", "reportingController").String()
	}
	instance := source.Get("host").String()
	if instance == "" {
		instance = event.Get("reportingInstance").String()
	}
	if instance != "" {
		reporter = fmt.Sprintf("%s, %s", reporter, instance)
	}
	return []any{
		since(last), event.Get("type").String(), event.Get("reason").String(), target,
		about.Get("fieldPath").String(), reporter, strings.TrimSpace(get("message", "note").String()),
		since(first), count, event.Get("metadata.name").String(),
	}
}
