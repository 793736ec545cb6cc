package decisionsapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/history"
)

const (
	// defaultLimit is the limit of a list that gives none. Ten times as many is the highest limit.
	defaultLimit = 500
	// defaultWindow is the number of records that all pages of a list without a selector cover.
	defaultWindow = 1000
	// A page ends, with a continue token, after this many records were examined or this many bytes are in the answer. A
	// write counts as writeWork records, because its object is read, too.
	maxExamined = 40_000
	writeWork   = 4
	maxAnswer   = 8 << 20
	// maxSearched is how many records are searched for one decision.
	maxSearched = 80_000
)

// query is what a request selects.
type query struct {
	*selector
	options *internalversion.ListOptions
	bodies  bool
	// first and last are times; zero means unbounded. oldest and newest are revisions of the log of record.
	first, last    time.Time
	oldest, newest uint64
}

// serve answers a get, list or watch.
func (v *service) serve(ctx context.Context, r *call.Call) error {
	q, err := newQuery(r)
	if err != nil {
		return err
	}
	switch r.Info.Verb {
	case "get":
		return v.get(ctx, r, q)
	case "list":
		return v.list(ctx, r, q)
	default:
		return v.watch(ctx, r, q)
	}
}

func newQuery(r *call.Call) (*query, error) {
	o, parameters := &internalversion.ListOptions{}, r.HTTP.URL.Query()
	if err := internalscheme.ParameterCodec.DecodeParameters(parameters, metav1.SchemeGroupVersion, o); err != nil {
		return nil, status.BadRequest(err.Error())
	}
	if errs := internalvalidation.ValidateListOptions(o, false); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		return nil, status.BadRequest("decisions have no labels; use a field selector")
	}
	q := &query{options: o, bodies: r.Info.Verb == "get"}
	if asked := parameters.Get("bodies"); asked != "" {
		var err error
		if q.bodies, err = strconv.ParseBool(asked); err != nil {
			return nil, status.BadRequestf("bodies is true or false, not %q", asked)
		}
	}
	of := o.FieldSelector
	if r.Info.Name != "" { // authorization allowed only this decision
		if of = fields.OneTermEqualSelector(fieldName, r.Info.Name); o.FieldSelector != nil {
			of = fields.AndSelectors(o.FieldSelector, of)
		}
	}
	var err error
	if q.selector, err = newSelector(r.Info.Namespace, of); err != nil {
		return nil, status.BadRequest(err.Error())
	}
	return q, nil
}

// resolve sets the bounds of a query. The history must have reached the world of the call.
func (v *service) resolve(ctx context.Context, r *call.Call, q *query) error {
	world := r.World()
	q.newest = world.Revision()
	if r.Past.Tip != nil {
		q.last = world.Time
	}
	if m := q.since; m != nil {
		q.oldest = m.Revision
		at, err := v.timeOf(ctx, m)
		if err != nil && !errors.Is(err, history.ErrNone) && !errors.Is(err, history.ErrForgotten) {
			return err
		}
		q.first = at
	}
	m := q.until
	if m == nil {
		return nil
	}
	at, err := v.timeOf(ctx, m)
	if err != nil && !errors.Is(err, history.ErrNone) {
		return err
	}
	if q.last.IsZero() || at.Before(q.last) {
		q.last = at
	}
	newest := m.Revision
	if newest == 0 {
		if newest, err = v.History.RevisionAt(ctx, m.Time); err != nil && !errors.Is(err, history.ErrNone) {
			return err
		}
	}
	q.newest = min(q.newest, newest)
	return nil
}

// timeOf returns the log time of a moment.
func (v *service) timeOf(ctx context.Context, m *past.Moment) (time.Time, error) {
	if m.Revision == 0 {
		return m.Time, nil
	}
	return v.History.Time(ctx, m.Revision)
}

// position is a position in both logs: all records up to it.
type position struct {
	write, record uint64
	log           string // the beginning of the decision log's ID; empty if there is none
}

// String returns the position as a resourceVersion.
func (p position) String() string {
	if p.log == "" {
		return strconv.FormatUint(p.write, 10)
	}
	return fmt.Sprintf("%d.%d.%s", p.write, p.record, p.log)
}

func shortID(id eventlog.ID) string { return hex.EncodeToString(id[:4]) }

// parsePosition parses a resourceVersion. That of another resource is a revision of the log of record.
func parsePosition(text string) (p position, err error) {
	revision, rest, both := strings.Cut(text, ".")
	if p.write, err = call.QueryRevision(revision); err != nil || !both {
		return p, err
	}
	record, id, _ := strings.Cut(rest, ".")
	if p.record, err = strconv.ParseUint(record, 10, 64); err != nil || len(id) != 8 {
		return p, status.BadRequestf("invalid resource version %q", text)
	}
	p.log = id
	return p, nil
}

// tip returns the newest position of the decision log, and its ID.
func (v *service) tip(ctx context.Context) (revision uint64, id string, err error) {
	if v.Source.Log == nil {
		return 0, "", nil
	}
	if v.Flush != nil {
		if err := v.Flush(ctx); err != nil {
			return 0, "", err
		}
	}
	head, err := v.Source.Log.ReadHead(ctx)
	return head.Revision, shortID(head.Log), err
}

// page is where a page of a list begins, and the position of the list.
type page struct {
	from, list position
	left       int // records that all further pages may have
}

const keyFormat = "%d.%d.%d.%s.%d"

// token returns the continue token of the next page.
func (p *page) token() (string, error) {
	log := p.list.log
	if log == "" {
		log = "-"
	}
	key := fmt.Sprintf(keyFormat, p.from.write, p.from.record, p.list.record, log, p.left)
	return storage.EncodeContinue(read.KeyPrefix+key, read.KeyPrefix, int64(p.list.write))
}

// pageOf returns the page that the options ask for. Afterwards the tip is not older than the list.
func (v *service) pageOf(ctx context.Context, r *call.Call, q *query) (*page, error) {
	o := q.options
	record, id, err := v.tip(ctx)
	if err != nil {
		return nil, err
	}
	if o.Continue != "" {
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return nil, status.BadRequest("specifying resource version is not allowed when using continue")
		}
		return v.nextPage(ctx, r, o.Continue, id)
	}
	p, asked := &page{left: math.MaxInt}, position{}
	version := o.ResourceVersion
	if version != "" && version != "0" {
		if asked, err = parsePosition(version); err != nil {
			return nil, err
		}
		version = strconv.FormatUint(asked.write, 10)
	}
	if err := v.See(ctx, r, version); err != nil {
		return nil, err
	}
	p.list = position{r.World().Revision(), record, id}
	if read.Exactly(o) {
		if err := v.Past.NotLost(ctx, asked.write); err != nil {
			return nil, err
		}
		if asked.log != id {
			return nil, ofOtherReplica("resource version")
		}
		p.list = asked
	}
	p.from = p.list
	return p, nil
}

// OfOtherLog is part of the message about a resource version or a continue token of another decision log.
const OfOtherLog = "is of the decision log of another replica"

func ofOtherReplica(what string) error {
	return status.Expired("the %s %s, or of one that was replaced: list again", what, OfOtherLog)
}

// nextPage returns the page of a continue token.
func (v *service) nextPage(ctx context.Context, r *call.Call, token, id string) (*page, error) {
	key, revision, err := storage.DecodeContinue(token, read.KeyPrefix)
	if err != nil {
		return nil, status.BadRequestf("invalid continue token: %v", err)
	}
	p, log := &page{}, ""
	key = strings.ReplaceAll(strings.TrimPrefix(key, read.KeyPrefix), ".", " ")
	if _, err := fmt.Sscanf(key, strings.ReplaceAll(keyFormat, ".", " "), &p.from.write, &p.from.record, &p.list.record, &log, &p.left); err != nil || revision < 1 || p.left < 0 {
		return nil, status.BadRequest("invalid continue token: continue key is not valid")
	}
	if p.list.write = uint64(revision); log != "-" {
		p.list.log = log
	}
	if p.list.log != id {
		return nil, ofOtherReplica("continue token")
	}
	return p, v.See(ctx, r, strconv.FormatInt(revision, 10))
}

// list answers with the newest decisions first.
func (v *service) list(ctx context.Context, r *call.Call, q *query) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	pg, err := v.pageOf(ctx, r, q)
	if err != nil {
		return err
	}
	if err := v.History.Reach(ctx, r.World().Revision()); err != nil {
		return err
	}
	if err := v.resolve(ctx, r, q); err != nil {
		return err
	}
	first := q.options.Continue == ""
	if !q.selects() && first {
		pg.left = defaultWindow
	}
	next, texts, err := v.page(ctx, r, q, pg)
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: pg.list.String()}
	if next != nil {
		if meta.Continue, err = next.token(); err != nil {
			return err
		}
	}
	if first {
		v.warn(r, q)
	}
	body, err := form.As(r, f, meta, texts, true)
	if err != nil {
		return err
	}
	return r.WriteBody(f, http.StatusOK, body)
}

// page returns the decisions of a page, and the next page; nil if there is none.
func (v *service) page(ctx context.Context, r *call.Call, q *query, pg *page) (next *page, texts [][]byte, err error) {
	limit := defaultLimit
	if q.options.Limit > 0 {
		limit = int(min(q.options.Limit, 10*defaultLimit))
	}
	s, bytes := v.newVisibility(r), 0
	m := v.recordsUpTo(ctx, q, pg.from)
	replay := v.Replays.Begin()
	s.During(replay)
	for x, err := range read.Through(ctx, replay, m.all) {
		if err != nil {
			return nil, nil, err
		}
		if !q.first.IsZero() && x.time.Before(q.first) {
			break
		}
		if pg.left == 0 {
			r.Warn(fmt.Sprintf("the list has the newest %d decisions: select older ones by the field since=REVISION|TIME, and all by since=1", defaultWindow))
			break
		}
		if m.examined > maxExamined || bytes > maxAnswer || len(texts) == limit {
			return m.nextPage(pg), texts, nil
		}
		if x.typ == TypeLost {
			m.lost(r, x, q)
		}
		if !q.matches(x) || x.write != nil && x.write.Revision < q.oldest {
			continue
		}
		text, err := s.encode(ctx, x, q, "")
		if err != nil {
			return nil, nil, err
		}
		texts, bytes, pg.left = append(texts, text), bytes+len(text), pg.left-1
	}
	if m.begins != "" && (q.first.IsZero() || m.oldest.After(q.first)) {
		r.Warn(m.begins)
	}
	return nil, texts, nil
}

// encode returns a decision for the client as JSON.
func (s *visibility) encode(ctx context.Context, x *record, q *query, version string) ([]byte, error) {
	d, err := s.show(ctx, x, q.bodies)
	if err != nil {
		return nil, err
	}
	d.ResourceVersion = version
	return json.Marshal(d)
}

// get answers with a decision by its name. If several requests have the audit ID, it is that of the first: a client that sends
// the audit ID of another request does not hide that request.
func (v *service) get(ctx context.Context, r *call.Call, q *query) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	pg, err := v.pageOf(ctx, r, &query{selector: q.selector, options: &internalversion.ListOptions{}})
	if err != nil {
		return err
	}
	if err := v.History.Reach(ctx, r.World().Revision()); err != nil {
		return err
	}
	if err := v.resolve(ctx, r, q); err != nil {
		return err
	}
	s := v.newVisibility(r)
	m := v.recordsUpTo(ctx, q, pg.from)
	replay := v.Replays.Begin()
	s.During(replay)
	var found changes.Named[*record]
	for x, err := range read.Through(ctx, replay, m.all) {
		if err != nil {
			return err
		}
		if m.cut = m.examined > maxSearched; m.cut || !q.first.IsZero() && x.time.Before(q.first) {
			break
		}
		if q.matches(x) {
			found.Add(x.meta, x)
		}
	}
	first, others := found.First()
	if first == nil {
		return v.unknown(r, m)
	}
	if others > 0 {
		r.Warn(changes.AlsoNamed(r.Info.Name, others))
	}
	text, err := s.encode(ctx, *first, q, "")
	if err != nil {
		return err
	}
	if text, err = form.As(r, f, metav1.ListMeta{ResourceVersion: pg.list.String()}, [][]byte{text}, false); err != nil {
		return err
	}
	return r.WriteBody(f, http.StatusOK, text)
}

// unknown returns the error for an audit ID that no record has. It says what cannot be known.
func (v *service) unknown(r *call.Call, m *merged) error {
	e := status.NotFound(r.Resource(), r.Info.Name)
	text := fmt.Sprintf("no write has the audit ID %q, and no record in the decision log of this replica", r.Info.Name)
	if v.Source.Log == nil {
		text = fmt.Sprintf("no write has the audit ID %q, and this replica keeps no decision log", r.Info.Name)
	}
	text += "; reads are recorded only as the audit rules of the policy say"
	if others := v.otherReplicas(); others != "" {
		text += "; " + others
	}
	if m.begins != "" {
		text += "; " + m.begins
	}
	if m.cut {
		text += fmt.Sprintf("; only the newest %d writes were searched: list decisions with the field selector request.auditID=%s to search older ones", maxSearched/writeWork, r.Info.Name)
	}
	e.ErrStatus.Message = text
	return e
}

// AskOthers begins the warning that names the other replicas.
const AskOthers = "decisions of other replicas are not shown here, ask them: "

func (v *service) otherReplicas() string {
	if v.others == nil {
		return ""
	}
	names := v.others()
	if len(names) == 0 {
		return ""
	}
	return AskOthers + strings.Join(names, ", ")
}

// warn tells the client what the answer cannot have.
func (v *service) warn(r *call.Call, q *query) {
	if !q.decisions() {
		return
	}
	if v.Source.Log == nil {
		r.Warn("this replica keeps no decision log: only writes are shown")
	}
	if others := v.otherReplicas(); others != "" {
		r.Warn(others)
	}
	if q.wantsReads() && len(r.Tip.Policy.Form().Audit.Rules) == 0 {
		r.Warn("the policy in force has no audit rules: reads that were answered are not recorded")
	}
}

// merged yields the records of both logs, the newest first.
type merged struct {
	v        *service
	all      iter.Seq2[*record, error]
	examined int
	// begins says since when the decision log has records, if older ones are not kept; set once its end is reached.
	begins string
	oldest time.Time // of the batches of the decision log that were read
	gaps   int
	cut    bool // the search ended before the oldest record
	// at is the next record of each log; nil at its end.
	at [2]*record
}

// recordsUpTo returns the records up to a position.
func (v *service) recordsUpTo(ctx context.Context, q *query, from position) *merged {
	m := &merged{v: v}
	m.all = func(yield func(*record, error) bool) {
		writes, stopWrites := iter.Pull2(v.writesBack(ctx, q, min(from.write, q.newest)))
		defer stopWrites()
		records, stopRecords := iter.Pull2(m.recordsBack(ctx, q, from.record))
		defer stopRecords()
		next := [2]func() (*record, error, bool){writes, records}
		for i := range next {
			var err error
			if m.at[i], err, _ = next[i](); err != nil {
				yield(nil, err)
				return
			}
		}
		for m.at[0] != nil || m.at[1] != nil {
			i := 0
			if m.at[0] == nil || m.at[1] != nil && m.at[1].time.After(m.at[0].time) {
				i = 1
			}
			if m.examined++; i == 0 {
				m.examined += writeWork - 1
			}
			if !yield(m.at[i], nil) {
				return
			}
			var err error
			if m.at[i], err, _ = next[i](); err != nil {
				yield(nil, err)
				return
			}
		}
	}
	return m
}

// nextPage returns the page that begins with the next record of each log.
func (m *merged) nextPage(pg *page) *page {
	next := &page{list: pg.list, left: pg.left}
	if w := m.at[0]; w != nil {
		next.from.write = w.write.Revision
	}
	if d := m.at[1]; d != nil {
		next.from.record = d.event.Revision
	}
	return next
}

// lost warns of a gap that a selection may hide.
func (m *merged) lost(r *call.Call, x *record, q *query) {
	const most = 3
	if len(q.terms) == 0 && q.namespace == "" || !q.decisions() {
		return
	}
	if m.gaps++; m.gaps > most {
		return
	}
	l := x.meta.GetDecisionsLost()
	many := "decisions"
	if n := l.GetCount(); n > 0 {
		many = strconv.FormatUint(n, 10) + " decisions"
	}
	r.Warn(fmt.Sprintf("%s between %s and %s were not recorded: %s", many, stamp(time.Unix(0, l.GetFromUnixNano())), stamp(time.Unix(0, l.GetToUnixNano())), l.GetWhy()))
}

// batchesAtOnce is how many batches of the decision log are read at once.
const batchesAtOnce = 16

// recordsBack yields the records of the decision log up to a position.
func (m *merged) recordsBack(ctx context.Context, q *query, from uint64) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		log := m.v.Source.Log
		if log == nil || !q.decisions() || from == 0 {
			return
		}
		if !q.last.IsZero() {
			last, err := eventlog.LastBefore(ctx, log, nil, 1, from, q.last.Add(1))
			if err != nil {
				yield(nil, err)
				return
			}
			from = min(from, last)
		}
		if id, ok := q.auditID(); ok && m.v.Find != nil {
			m.found(ctx, id, from, yield)
			return
		}
		for from = m.v.skip(q, from); from > 0; from = m.v.skip(q, from) {
			batches, err := log.Back(ctx, from, batchesAtOnce)
			if forgotten := (*eventlog.ForgottenError)(nil); errors.As(err, &forgotten) || err == nil && len(batches) == 0 {
				m.begins = "older decisions of this replica are not kept any more"
				if !m.oldest.IsZero() {
					m.begins = "decisions of this replica before " + stamp(m.oldest) + " are not kept any more"
				}
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, b := range batches {
				m.oldest = b.Time
				for i := len(b.Events) - 1; i >= 0; i-- {
					e := b.Events[i]
					if e.Revision > from {
						continue
					}
					if x := ofEvent(e); x != nil && !yield(x, nil) {
						return
					}
				}
				from = b.First - 1
			}
		}
	}
}

// skip returns from where in the decision log a search goes on that has come to a revision.
func (v *service) skip(q *query, from uint64) uint64 {
	if v.Source.Back == nil || from == 0 {
		return from
	}
	user, _ := q.exactly("actor.user")
	rule, _ := q.exactly("rule")
	return v.Source.Back(from, user, rule)
}

// found yields the records that the index has for an audit ID, up to a position.
func (m *merged) found(ctx context.Context, id string, upto uint64, yield func(*record, error) bool) {
	events, err := m.v.Find(ctx, id)
	if err != nil {
		yield(nil, err)
		return
	}
	for _, e := range events {
		if x := ofEvent(e); x != nil && e.Revision <= upto && !yield(x, nil) {
			return
		}
	}
}

// auditID returns the audit ID that the query requires, if it requires one.
func (q *query) auditID() (id string, ok bool) {
	if id, ok = q.exactly("request.auditID"); ok {
		return id, true
	}
	id, ok = q.exactly(fieldName)
	return id, ok && !strings.HasPrefix(id, "counted-") && !strings.HasPrefix(id, "lost-") && !strings.HasPrefix(id, "decision-")
}

var form = call.NewForm(ListKind, Group+"/"+Version, Columns)
