package table

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var eventHeaders = func() []metav1.TableColumnDefinition {
	about := corev1.Event{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		text("Last Seen", about["lastTimestamp"]), text("Type", about["type"]), text("Reason", about["reason"]), text("Object", about["involvedObject"]),
		wide("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"]), wide("Source", about["source"]), text("Message", about["message"]),
		wide("First Seen", about["firstTimestamp"]), wide("Count", about["count"]),
		{Name: "Name", Type: "string", Format: "name", Priority: 1, Description: docs["name"]},
	}
}()

// eventRow returns the row of an event. A newer event has the time of observation instead of the time of recording. An
// event with a series was last seen when the series was.
func eventRow(event gjson.Result, now time.Time) []any {
	get := func(path, inEventsGroup string) gjson.Result {
		if v := event.Get(path); v.Exists() {
			return v
		}
		return event.Get(inEventsGroup)
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
		ageOf(last, now), event.Get("type").String(), event.Get("reason").String(), target,
		about.Get("fieldPath").String(), reporter, strings.TrimSpace(get("message", "note").String()),
		ageOf(first, now), count, event.Get("metadata.name").String(),
	}
}
