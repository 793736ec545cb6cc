package top

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core/resources/flowapi"
)

// flowList is the flows of a server at a moment.
type flowList struct {
	Items []flowapi.FlowObject `json:"items"`
	at    time.Time
}

// readFlows reads the flows of a server.
func readFlows(ctx context.Context, config *rest.Config) (*flowList, error) {
	path := "/apis/" + flowapi.Group + "/" + flowapi.Version + "/" + flowapi.FlowPlural
	text, err := client.Read(ctx, config, path, nil)
	if apierrors.IsNotFound(err) {
		return nil, errors.New("the server is too old: it has no flows.flow.stele.dev; `stele version` shows both versions")
	}
	if err != nil {
		return nil, readable(err, "flows.flow.stele.dev", `apiGroups: ["flow.stele.dev"], resources: ["flows"], verbs: ["get", "list"]`)
	}
	l := &flowList{at: time.Now()}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// selectFlows keeps the flows of a priority level and of a flow schema, "" for all, and sorts them: those that use most
// first.
func (l *flowList) selectFlows(level, schema string) {
	l.Items = slices.DeleteFunc(l.Items, func(f flowapi.FlowObject) bool {
		return level != "" && f.Status.PriorityLevel != level || schema != "" && f.Status.FlowSchema != schema
	})
	slices.SortStableFunc(l.Items, func(a, b flowapi.FlowObject) int {
		x, y := &a.Status, &b.Status
		return cmp.Or(cmp.Compare(y.Seats, x.Seats), cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(y.Refused, x.Refused), cmp.Compare(y.Watches, x.Watches),
			strings.Compare(x.PriorityLevel, y.PriorityLevel), strings.Compare(x.FlowSchema, y.FlowSchema), strings.Compare(x.Distinguisher, y.Distinguisher))
	})
}

// text prints the flows.
func (l *flowList) text(out *show.Output, wide bool) error {
	if len(l.Items) == 0 {
		_, err := fmt.Fprintln(out, "No flow runs, waits, watches, or was refused in the last ten minutes.")
		return err
	}
	c := &show.Columns{Out: out}
	header := []string{"LEVEL", "FLOW SCHEMA", "FLOW", "SEATS", "RUNNING", "WAITING", "LONGEST", "WATCHES", "REFUSED", "LAST", "WHY", "SOURCE"}
	if wide {
		header = append(header, "DISTINGUISHER", "WAITING SEATS", "WATCH LIMIT")
	}
	c.Header(header...)
	for i := range l.Items {
		s := &l.Items[i].Status
		cells := []show.Cell{{Text: s.PriorityLevel}, {Text: s.FlowSchema}, {Text: flowName(s, wide), Style: flowStyle(s)},
			count(s.Seats), count(s.Executing), count(s.Waiting), show.Number(cmp.Or(s.LongestWait, "-")), count(s.Watches),
			count(s.Refused), show.Number(l.lastText(s)), {Text: reasons(s, wide)}, {Text: cmp.Or(s.Source, "built-in")}}
		if wide {
			cells = append(cells, show.Cell{Text: cmp.Or(s.DistinguisherMethod, "-")}, count(s.WaitingSeats), show.Number(limitText(s.WatchLimit)))
		}
		c.Add("", cells...)
	}
	return c.Flush()
}

// longest is how many characters of a flow's name are shown, unless the user asks for all.
const longest = 40

// flowName returns the distinguisher of a flow. A tab would move the columns behind it.
func flowName(s *flowapi.FlowStatus, wide bool) string {
	name := []rune(strings.ReplaceAll(cmp.Or(s.Distinguisher, "-"), "\t", " "))
	if len(name) > longest && !wide {
		return string(name[:longest-1]) + "…"
	}
	return string(name)
}

func count(n int64) show.Cell { return show.Number(fmt.Sprint(n)) }

func limitText(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// flowStyle colors flows that wait or were refused.
func flowStyle(s *flowapi.FlowStatus) show.Style {
	switch {
	case s.Refused > 0:
		return show.Removed
	case s.Waiting > 0:
		return show.Altered
	}
	return ""
}

// lastText says how long ago the last request was refused.
func (l *flowList) lastText(s *flowapi.FlowStatus) string {
	if s.LastRefused == nil {
		return "-"
	}
	return fmt.Sprintf("%.0fs ago", max(0, l.at.Sub(s.LastRefused.Time).Seconds()))
}

// reasons says why requests were refused, most frequent first; with their numbers if wide is set or if there are
// several.
func reasons(s *flowapi.FlowStatus, wide bool) string {
	all := slices.Clone(s.Refusals)
	slices.SortStableFunc(all, func(a, b flowapi.Refusal) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	var parts []string
	for _, r := range all {
		text := r.Reason
		if wide || len(all) > 1 {
			text += fmt.Sprintf(" %d", r.Count)
		}
		parts = append(parts, text)
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// names returns the values that flows have.
func (l *flowList) names(of func(*flowapi.FlowStatus) string) []string {
	var names []string
	for i := range l.Items {
		names = append(names, of(&l.Items[i].Status))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
