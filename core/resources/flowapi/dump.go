package flowapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/load/flow"
	"stele.dev/stele/core/serve/nonresource"
)

// debugPath is the path of the dumps.
const debugPath = "/debug/api_priority_and_fairness/"

// Routes returns the paths of the dumps, which have the names and columns of those of kube-apiserver: tables for operators,
// of levels, queues and requests.
func Routes(c *flow.Control) []nonresource.Route {
	route := func(name string, dump func(*call.Call, *tables)) nonresource.Route {
		return nonresource.Route{Path: debugPath + name, Serve: func(x *call.Call) error {
			var t tables
			dump(x, &t)
			return x.Send("text/plain; charset=utf-8", http.StatusOK, t.text())
		}}
	}
	return []nonresource.Route{
		route("dump_priority_levels", func(_ *call.Call, t *tables) { dumpLevels(t, c.Levels()) }),
		route("dump_queues", func(_ *call.Call, t *tables) { dumpQueues(t, c.Levels()) }),
		route("dump_requests", func(x *call.Call, t *tables) {
			dumpRequests(t, c.Levels(), x.HTTP.URL.Query().Get("includeRequestDetails") != "")
		}),
	}
}

// tables collects the rows of a table.
type tables struct{ rows bytes.Buffer }

// row adds a row. Control characters, which a user name may have, are quoted.
func (t *tables) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			t.rows.WriteString(",\t")
		}
		text := fmt.Sprint(c)
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			text = fmt.Sprintf("%q", text)
		}
		t.rows.WriteString(text)
	}
	t.rows.WriteByte('\n')
}

// text returns the table with aligned columns.
func (t *tables) text() []byte {
	var aligned bytes.Buffer
	w := tabwriter.NewWriter(&aligned, 8, 0, 1, ' ', 0)
	_, _ = w.Write(t.rows.Bytes()) // a buffer takes everything
	_ = w.Flush()
	return aligned.Bytes()
}

func dumpLevels(t *tables, levels []flow.LevelState) {
	t.row("PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests")
	for i := range levels {
		l := &levels[i]
		q, active := l.Queues, 0
		for _, x := range l.ListQueues() {
			if x.Waiting > 0 {
				active++
			}
		}
		t.row(l.Name, active, q.Idle(), l.Draining, q.Waiting, q.Executing, q.Dispatched, q.Refused.QueueFull+q.Refused.ConcurrencyLimit, q.Refused.TimeOut, q.Refused.Cancelled)
	}
}

// dumpQueues writes one row for each flow that has requests or seats: a flow has a queue of its own.
func dumpQueues(t *tables, levels []flow.LevelState) {
	t.row("PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
	for i := range levels {
		l := &levels[i]
		for _, q := range l.ListQueues() {
			t.row(l.Name, q.Index, q.Waiting, q.Executing, q.Taken, seconds(q.Start), q.WaitingSeats, q.WaitingSeats, seconds(q.WaitingWork))
		}
	}
}

// seconds spells seat-seconds.
func seconds(x float64) string { return fmt.Sprintf("%.8fss", x) }

func dumpRequests(t *tables, levels []flow.LevelState, details bool) {
	heads := []any{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
	if details {
		heads = append(heads, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	t.row(heads...)
	for i := range levels {
		for _, r := range levels[i].ListRequests() {
			position := -1
			if r.Started.IsZero() {
				position = r.Position
			}
			cells := []any{levels[i].Name, r.Schema, r.Queue, position, r.Distinguisher, r.Arrived.UTC().Format(time.RFC3339Nano), r.Work.Seats, r.Work.FinalSeats, r.Work.After, r.Started.UTC().Format(time.RFC3339Nano)}
			if asked, ok := r.Details.(*call.Asked); ok && details {
				x := asked.Info
				cells = append(cells, asked.User, x.Verb, x.Path, x.Namespace, x.Name, schema.GroupVersion{Group: x.APIGroup, Version: x.APIVersion}, x.Resource, x.Subresource)
			}
			t.row(cells...)
		}
	}
}
