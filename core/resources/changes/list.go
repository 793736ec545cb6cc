package changes

import (
	"context"
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
	labelselectors "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/load/cost"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/history"
)

// service answers calls about changes.
type service struct{ *read.Reader }

// New returns the virtual resource of changes.
func New(rd *read.Reader) *catalog.Resource {
	return &catalog.Resource{Resource: Resource(), Object: func() any { return Change{} }, Cost: estimate, Serve: (&service{rd}).serve}
}

// Times of one change, see estimate.
const (
	changeTime  = 40 * time.Microsecond // read from the history, compared with the version before it, and sent
	unlimited   = 10_000                // as many changes have the maximum cost
	getTime     = 200 * time.Microsecond
	watchedTime = 10 * time.Microsecond // less, because a watch sends what it can at once
)

// estimate returns the time of a call: by the limit of a list, or the revisions that a watch resumes from.
func estimate(c *call.Call) time.Duration {
	revisions := int(min(c.Tip.Revision(), unlimited))
	switch c.Info.Verb {
	case "get":
		return getTime
	case "list":
		if limit := cost.Limit(c); limit > 0 {
			return getTime + time.Duration(min(limit, revisions))*changeTime
		}
		return getTime + time.Duration(revisions)*changeTime
	}
	if from := cost.Revision(c); from > 0 && from < c.Tip.Revision() {
		return getTime + time.Duration(min(c.Tip.Revision()-from, unlimited))*watchedTime
	}
	return getTime
}

// query is the part of a request that selects changes.
type query struct {
	*Selection
	options *internalversion.ListOptions
	// difference is true if the answer includes the differences.
	difference bool
	// since and until are the first and the last revision.
	since, until uint64
}

// serve answers a get, list or watch from the history of the log.
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
	// The second argument rejects sendInitialEvents: the initial events would be the whole log. The client lists instead.
	if errs := internalvalidation.ValidateListOptions(o, false); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	q := &query{options: o, difference: true}
	if asked := parameters.Get("difference"); asked != "" {
		var err error
		if q.difference, err = strconv.ParseBool(asked); err != nil {
			return nil, status.BadRequestf("difference is true or false, not %q", asked)
		}
	}
	selector := o.FieldSelector
	if r.Info.Name != "" { // authorization allowed only this change
		selector = fields.OneTermEqualSelector("metadata.name", r.Info.Name)
		if o.FieldSelector != nil {
			selector = fields.AndSelectors(o.FieldSelector, selector)
		}
	}
	var err error
	if q.Selection, err = Select(r.Info.Namespace, selector); err != nil {
		return nil, status.BadRequest(err.Error())
	}
	return q, nil
}

// resolve sets the first and the last revision of a query. The history must have reached upto.
func (v *service) resolve(ctx context.Context, q *query, upto uint64) error {
	q.since, q.until = 1, math.MaxUint64
	if m := q.Since; m != nil {
		if q.since = m.Revision; m.Revision == 0 {
			before, err := v.History.RevisionAt(ctx, m.Time.Add(-1))
			if err != nil && !errors.Is(err, history.ErrNone) {
				return err
			}
			q.since = before + 1
		}
	}
	if m := q.Until; m != nil {
		// The times of later revisions are not known yet; late compares those.
		if q.until = m.Revision; m.Revision == 0 {
			last, err := v.History.RevisionAt(ctx, m.Time)
			if err != nil && !errors.Is(err, history.ErrNone) {
				return err
			}
			if q.until = last; last >= upto {
				q.until = math.MaxUint64
			}
		}
	}
	if name, ok := q.Exactly("metadata.name"); ok {
		n, err := strconv.ParseUint(name, 10, 64)
		if err != nil {
			q.until = 0 // no change has this name
			return nil
		}
		q.since, q.until = max(q.since, n), min(q.until, n)
	}
	return nil
}

// late reports whether a change is after the end of the query.
func (q *query) late(h *history.Change) bool {
	return h.Revision > q.until || q.Until != nil && q.Until.Revision == 0 && h.Time.After(q.Until.Time)
}

// filter returns a filter for the history that includes all changes of the query, and few others.
func (q *query) filter() history.Filter {
	f := history.Filter{Namespace: q.Namespace}
	for _, field := range [...]string{"metadata.namespace", "object.namespace"} {
		if namespace, ok := q.Exactly(field); ok && f.Namespace == "" {
			f.Namespace = namespace
		}
	}
	group, ok := q.Exactly("object.group")
	if resource, named := q.Exactly("object.resource"); ok && named {
		f.Resource = schema.GroupResource{Group: group, Resource: resource}
		f.Name, _ = q.Exactly("object.name")
	}
	return f
}

// changesBack yields the changes up to a revision that may match the query, the newest first.
func (v *service) changesBack(ctx context.Context, r *call.Call, q *query, from uint64) iter.Seq2[*history.Change, error] {
	f := q.filter()
	if f.Resource.Empty() || f.Name == "" {
		return v.History.Before(ctx, f, from)
	}
	_, inNone := q.Exactly("object.namespace")
	if kind := r.Tip.Policy.Kind(f.Resource); f.Namespace != "" || inNone || kind != nil && !kind.Namespaced {
		return v.History.Versions(ctx, f.Resource, f.Namespace, f.Name, from)
	}
	return v.History.Before(ctx, f, from)
}

// change returns a change for the client, with the difference to the previous version if the query includes it.
func (v *service) change(ctx context.Context, r *call.Call, q *query, h *history.Change) (*Change, error) {
	c := From(h)
	if h.Object == nil || !q.difference && h.Previous > 0 {
		return c, nil
	}
	resource := resourceOf(h)
	before, err := v.previousChange(ctx, h)
	if errors.As(err, new(*eventlog.DamageError)) {
		before, err = nil, nil // the change itself can be read
	}
	if err != nil {
		return nil, err
	}
	c.Object.Sensitive = c.Object.Sensitive || before != nil && read.HoldsSecrets(before)
	isNew := !h.Deleted && h.Previous == 0
	if isNew && before != nil {
		c.Object.PreviousUID = before.Object.GetUid()
	}
	if !q.difference {
		return c, nil
	}
	var was, is []byte
	switch {
	case h.Deleted:
		was = h.Payload
	case isNew:
		is = h.Payload
	case before != nil:
		was, is = before.Payload, h.Payload
	}
	if was == nil && !isNew || is == nil && !h.Deleted {
		return c, nil // one of the versions is no longer kept
	}
	from, err := read.DecodePayload(was)
	if err != nil {
		return nil, err
	}
	to, err := read.DecodePayload(is)
	if err != nil {
		return nil, err
	}
	o := difference.Options{}
	if kind := r.Tip.Policy.Kind(resource); kind != nil {
		o.Schema = kind.Storage().Schema
	}
	c.Difference = difference.Between(from, to, o)
	return c, nil
}

// previousChange returns the change of the same name before a change; nil if there is none, or if it is not kept any more.
func (v *service) previousChange(ctx context.Context, h *history.Change) (*history.Change, error) {
	before, err := v.History.Get(ctx, resourceOf(h), h.Object.GetNamespace(), h.Object.GetName(), h.Revision-1)
	if errors.Is(err, history.ErrForgotten) {
		return nil, nil
	}
	return before, err
}

// labels returns the label selector of the query, nil if it has none.
func (q *query) labels() labelselectors.Selector {
	if s := q.options.LabelSelector; s != nil && !s.Empty() {
		return s
	}
	return nil
}

// chosen returns a change for the client, or nil if the labels of its object or its difference do not match the query.
// The caller has checked that the user may see the change.
func (v *service) chosen(ctx context.Context, r *call.Call, q *query, h *history.Change) (*Change, error) {
	if has, err := v.hasLabels(ctx, q.labels(), h); err != nil || !has {
		return nil, err
	}
	if q.Path == "" {
		return v.change(ctx, r, q, h)
	}
	full := *q
	full.difference = true
	c, err := v.change(ctx, r, &full, h)
	if err != nil || !q.MatchesDifference(c) {
		return nil, err
	}
	if !q.difference {
		c.Difference = nil
	}
	return c, nil
}

// hasLabels reports whether a selector matches the object of a change, as it was before or after the change.
func (v *service) hasLabels(ctx context.Context, selector labelselectors.Selector, h *history.Change) (bool, error) {
	switch {
	case selector == nil:
		return true, nil
	case h.Object == nil:
		return false, nil
	case h.Payload != nil && selector.Matches(metadata.Labels(h.Payload)):
		return true, nil
	case h.Previous == 0 || h.Deleted:
		return false, nil
	}
	before, err := v.previousChange(ctx, h)
	if err != nil || before == nil || before.Payload == nil {
		return false, err
	}
	return selector.Matches(metadata.Labels(before.Payload)), nil
}

func (v *service) get(ctx context.Context, r *call.Call, q *query) error {
	if err := v.See(ctx, r, ""); err != nil {
		return err
	}
	if err := v.History.Reach(ctx, r.World().Revision()); err != nil {
		return err
	}
	if err := v.resolve(ctx, q, r.World().Revision()); err != nil {
		return err
	}
	notFound := status.NotFound(r.Resource(), r.Info.Name)
	revision, err := strconv.ParseUint(r.Info.Name, 10, 64)
	if err != nil || revision > r.World().Revision() || strconv.FormatUint(revision, 10) != r.Info.Name {
		return notFound
	}
	h, err := v.History.At(ctx, revision)
	if err != nil {
		return err
	}
	// A change of an object that the user may not read is not found. Another error would reveal that it exists.
	if h == nil || revision < q.since || q.late(h) || !q.Matches(From(h)) {
		return notFound
	}
	s := v.newVisibility(r)
	if reads, err := s.reads(ctx, h); err != nil {
		return err
	} else if !reads {
		return notFound
	}
	if err := s.reach(ctx, h); err != nil {
		return err
	}
	c, err := v.chosen(ctx, r, q, h)
	if err != nil {
		return err
	}
	if c == nil {
		return notFound
	}
	return v.answer(r, c)
}

func (v *service) answer(r *call.Call, c *Change) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if text, err = form.As(r, f, metav1.ListMeta{ResourceVersion: c.ResourceVersion}, [][]byte{text}, false); err != nil {
		return err
	}
	return r.WriteBody(f, http.StatusOK, text)
}

const (
	// defaultLimit is the limit of a list that gives none. Ten times as many is the highest limit.
	defaultLimit = 500
	// defaultWindow is the number of revisions that all pages of a list without a selector cover.
	defaultWindow = 1000
	// A page ends, with a continue token, after this many changes were examined, this many bytes of objects were read,
	// or this many bytes are in the answer.
	maxExamined = 20_000
	maxRead     = 32 << 20
	maxAnswer   = 8 << 20
)

// page is the revision at which a page of a list begins, and the revision of the list.
type page struct{ from, revision uint64 }

// pageOf returns the page that the options ask for. Afterwards the tip is not older than the list.
func (v *service) pageOf(ctx context.Context, r *call.Call, o *internalversion.ListOptions) (pg page, err error) {
	if o.Continue != "" {
		key, revision, err := storage.DecodeContinue(o.Continue, read.KeyPrefix)
		if err != nil {
			return pg, status.BadRequestf("invalid continue token: %v", err)
		}
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return pg, status.BadRequest("specifying resource version is not allowed when using continue")
		}
		pg.from, err = strconv.ParseUint(strings.TrimPrefix(key, read.KeyPrefix), 10, 64)
		if err != nil || revision < 1 || pg.from < 1 || pg.from > uint64(revision) {
			return pg, status.BadRequest("invalid continue token: continue key is not valid")
		}
		pg.revision = uint64(revision)
		return pg, v.See(ctx, r, strconv.FormatUint(pg.revision, 10))
	}
	if err := v.See(ctx, r, o.ResourceVersion); err != nil {
		return pg, err
	}
	pg.revision = r.World().Revision()
	if read.Exactly(o) {
		if pg.revision, err = call.QueryRevision(o.ResourceVersion); err != nil {
			return pg, err
		}
		if err := v.Past.NotLost(ctx, pg.revision); err != nil {
			return pg, err
		}
	}
	pg.from = pg.revision
	return pg, nil
}

// list answers with the newest changes first. Its continue token has the revision at which the next page begins, so new
// changes do not affect later pages.
func (v *service) list(ctx context.Context, r *call.Call, q *query) error {
	f, err := r.Format()
	if err != nil {
		return err
	}
	pg, err := v.pageOf(ctx, r, q.options)
	if err != nil {
		return err
	}
	if err := v.History.Reach(ctx, r.World().Revision()); err != nil {
		return err
	}
	if err := v.resolve(ctx, q, r.World().Revision()); err != nil {
		return err
	}
	boundList(r, q, pg)
	texts, next, err := v.backFrom(ctx, r, q, min(pg.from, q.until))
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(pg.revision, 10)}
	if next > 0 {
		if meta.Continue, err = storage.EncodeContinue(read.KeyPrefix+strconv.FormatUint(next, 10), read.KeyPrefix, int64(pg.revision)); err != nil {
			return err
		}
	}
	body, err := form.As(r, f, meta, texts, true)
	if err != nil {
		return err
	}
	return r.WriteBody(f, http.StatusOK, body)
}

// boundList limits a list without a selector to the newest changes. A client gets the whole log only with since=1.
func boundList(r *call.Call, q *query, pg page) {
	if q.Selects() || q.labels() != nil || pg.revision <= defaultWindow {
		return
	}
	q.since = pg.revision - defaultWindow + 1
	if q.options.Continue == "" {
		r.Warn(fmt.Sprintf("the list begins at revision %d: select older changes by the field since=REVISION|TIME, and all by since=1", q.since))
	}
}

// backFrom returns the changes of a page, and the revision at which the next page begins, 0 if there are no more.
func (v *service) backFrom(ctx context.Context, r *call.Call, q *query, from uint64) (texts [][]byte, next uint64, err error) {
	limit := defaultLimit
	if q.options.Limit > 0 {
		limit = int(min(q.options.Limit, 10*defaultLimit))
	}
	s, looked, read, bytes := v.newVisibility(r), 0, 0, 0
	replay := v.Replays.Begin()
	s.During(replay)
	for h, err := range replay.Through(ctx, v.changesBack(ctx, r, q, from)) {
		if damage := (*eventlog.DamageError)(nil); errors.As(err, &damage) && damage.To < q.since {
			break // the newest that cannot be read is not asked for
		}
		if err != nil {
			return nil, 0, err
		}
		if h.Revision < q.since {
			break
		}
		if looked++; looked > maxExamined || read > maxRead || bytes > maxAnswer {
			return texts, h.Revision, nil
		}
		if q.late(h) || !q.Matches(From(h)) {
			continue
		}
		if sees, err := s.sees(ctx, q, h); err != nil {
			return nil, 0, err
		} else if !sees {
			continue
		}
		if len(texts) == limit {
			return texts, h.Revision, nil
		}
		if q.difference || q.Path != "" || q.labels() != nil {
			read += len(h.Payload)
		}
		c, err := v.chosen(ctx, r, q, h)
		if err != nil {
			return nil, 0, err
		}
		if c == nil {
			continue
		}
		text, err := json.Marshal(c)
		if err != nil {
			return nil, 0, err
		}
		texts, bytes = append(texts, text), bytes+len(text)
	}
	return texts, 0, nil
}

var form = call.NewForm(ListKind, Group+"/"+Version, Columns)
