package plans

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/batches"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/schemas"
)

// Decided are recorded decisions about requests that left no event in the log of record. They are safe for concurrent use.
type Decided interface {
	// Decisions returns events of a decision log, in any order.
	Decisions(context.Context) iter.Seq2[*eventlog.Event, error]
	// Before returns an object as it was at a revision; nil if there was none. known is false if it cannot be told.
	Before(ctx context.Context, o *logpb.Object, revision uint64) (before *history.Change, known bool, err error)
}

// decided has the decisions of a server since a moment.
type decided struct {
	log     decisionsapi.Log
	history *history.Store
	since   time.Time
}

func (d *decided) Decisions(ctx context.Context) iter.Seq2[*eventlog.Event, error] {
	return func(yield func(*eventlog.Event, error) bool) {
		const batchesAtOnce = 16
		head, err := d.log.ReadHead(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for from := head.Revision; from > 0; {
			batches, err := d.log.Back(ctx, from, batchesAtOnce)
			if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(batches) == 0 {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, b := range batches {
				if b.Time.Before(d.since) {
					return
				}
				for _, e := range b.Events {
					if !yield(e, nil) {
						return
					}
				}
				from = b.First - 1
			}
		}
	}
}

func (d *decided) Before(ctx context.Context, o *logpb.Object, revision uint64) (*history.Change, bool, error) {
	c, err := d.history.Get(ctx, schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}, o.GetNamespace(), o.GetName(), revision)
	if errors.Is(err, history.ErrForgotten) {
		return nil, false, nil
	}
	if err != nil || c == nil || c.Deleted {
		return nil, err == nil, err
	}
	return c, true, nil
}

// Reasons why a request that wrote nothing cannot be decided again.
const (
	isBodyless   = "its body was not kept, or only in part"
	isHashed     = "its body has secrets, which are recorded as hashes"
	isPatch      = "it is a patch that cannot be applied again"
	isCollection = "it is a deletecollection, and what it would have deleted is not recorded"
	isAbsent     = "its object was not there, or is not kept any more"
	isPending    = "a grant depends on the object"
	isTooMuch    = "a rule of admission reads stored objects, and more refusals depend on them than a plan keeps in memory"
	isCounted    = "it was counted, and not recorded by itself"
	wasUnlike    = "the policy that refused it allows it when it is decided again"
)

// ofPolicy are the stages in which rules of the policy refuse.
var ofPolicy = map[string]bool{"authorization": true, "mutation": true, "conditions": true, "schema": true, "validation": true}

// replayDecided decides recorded refusals and reads again: which of the refusals the new policy would allow, and which of
// the reads it would refuse. It returns the refusals that depend on stored objects, in the order of their revisions.
func (c *contrasts) replayDecided(ctx context.Context, o *Options) (all *flips, waiting []*eventlog.Event, err error) {
	parts, err := batches.Do(ctx, o.Decided.Decisions(ctx), newFlips, func(ctx context.Context, batch []*eventlog.Event, into *flips) error {
		for _, e := range batch {
			if err := c.decideRequest(ctx, e, into, o); err != nil {
				return fmt.Errorf("record %d: %w", e.Revision, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("recorded decisions cannot be decided again: %w", err)
	}
	all = newFlips()
	for _, part := range parts {
		all.add(part)
		waiting = append(waiting, part.waiting...)
	}
	slices.SortFunc(waiting, func(a, b *eventlog.Event) int { return cmp.Compare(decidedAt(a), decidedAt(b)) })
	return all, waiting, nil
}

// decideRequest decides one recorded refusal or read again, unless it is a refusal that waits for the stored objects of then.
func (c *contrasts) decideRequest(ctx context.Context, e *eventlog.Event, f *flips, o *Options) error {
	d := e.Meta.GetDecision()
	if c := e.Meta.GetDecisionsCounted(); c != nil && c.GetLike().GetOutcome() == logpb.Outcome_OUTCOME_REFUSED {
		f.undecided[isCounted] += int(min(c.GetCount(), 1<<31))
	}
	outcome := d.GetOutcome()
	if outcome != logpb.Outcome_OUTCOME_REFUSED && outcome != logpb.Outcome_OUTCOME_READ || d.GetAuditStage() == 2 { // a watch has a second record
		return nil
	}
	if outcome == logpb.Outcome_OUTCOME_REFUSED && !ofPolicy[d.GetStage()] {
		return nil // for lack of seats, for instance: no rule of a policy refused it
	}
	if target, err := url.ParseRequestURI(e.Meta.GetRequest().GetUri()); err == nil && target.Query().Has("dryRun") {
		return nil
	}
	if at := placeOf(e.Meta.GetObject()).GroupResource; o.secret(at) && !o.mayName(at) {
		f.undecided[isSecret]++
		return nil
	}
	r := &Record{Change: undone(e)}
	is, was, err := c.again(ctx, r, e, o)
	if err != nil {
		return err
	}
	if is.unknown == isStored && len(c.read) > 0 {
		if c.keeps(e) {
			f.waiting = append(f.waiting, e)
			return nil
		}
		is.unknown = isTooMuch
	}
	f.countAgain(e, is, was, o)
	return nil
}

// decideRefusal decides a refusal again that waited for the stored objects of then.
func (c *contrasts) decideRefusal(ctx context.Context, r *Record, f *flips, o *Options) error {
	is, was, err := c.again(ctx, r, r.refusal, o)
	if err == nil {
		f.countAgain(r.refusal, is, was, o)
	}
	return err
}

// again decides a recorded refusal or read under the new policy, and under the older one if it flips; otherwise was is empty.
func (c *contrasts) again(ctx context.Context, r *Record, e *eventlog.Event, o *Options) (is, was verdict, err error) {
	is, err = c.to.again(ctx, r, e, o.Decided)
	refused := wasRefused(e)
	if err != nil || is.unknown != "" || (is.stage != "") == refused {
		return is, verdict{}, err
	}
	was, err = c.from.again(ctx, r, e, o.Decided)
	if err != nil {
		return is, was, err
	}
	made := c.from.policy.Digest()
	switch like := bytes.Equal(e.Meta.GetPolicyDigest(), made[:]); {
	case was.unknown != "":
		is.unknown = was.unknown
	case (was.stage != "") != refused && like && refused:
		is.unknown = wasUnlike
	case (was.stage != "") != refused && like:
		is.unknown = isUnlike
	case (was.stage != "") != refused:
		is = was // the change does not introduce it
	}
	return is, was, nil
}

func wasRefused(e *eventlog.Event) bool {
	return e.Meta.GetDecision().GetOutcome() == logpb.Outcome_OUTCOME_REFUSED
}

// countAgain counts a refusal or a read that was decided again.
func (f *flips) countAgain(e *eventlog.Event, is, was verdict, o *Options) {
	refused := wasRefused(e)
	switch {
	case is.unknown != "":
		f.undecided[is.unknown]++
		return
	case refused:
		f.refusals++
	default:
		f.reads++
	}
	if (is.stage != "") != refused {
		f.countRequest(e, is, was, o)
	}
}

// bytesWaiting limits the memory of refusals that wait for the stored objects of then.
const bytesWaiting = 64 << 20

// keeps reports whether there is room for a refusal that waits.
func (c *contrasts) keeps(e *eventlog.Event) bool {
	return c.waiting.Add(int64(2*proto.Size(e.Meta)+len(e.Content(logpb.Role_ROLE_REQUEST)))) <= bytesWaiting
}

// again decides a recorded request that wrote nothing under a policy.
func (j *judge) again(ctx context.Context, r *Record, e *eventlog.Event, d Decided) (verdict, error) {
	w := &write{Record: &Record{Change: undone(e), states: r.states}, request: e.Meta.GetRequest()}
	if !w.readRequest() {
		return verdict{unknown: isUnreadable}, nil
	}
	if !w.access.IsResource || reads(w.access.Verb) {
		return j.read(ctx, w), nil
	}
	if w.access.Verb != "create" {
		w.Previous = max(1, w.Revision) // the object was there: else the create that it would come to is authorized, too
	}
	if v := j.authorize(ctx, w); v.stage != "" || v.unknown != "" {
		return v, nil
	}
	v := j.policy.Version(schema.GroupVersionResource{Group: w.access.Group, Version: w.access.Version, Resource: w.access.Resource})
	if unknown, err := w.restore(ctx, v, e, d); unknown != "" || err != nil {
		return verdict{unknown: unknown}, err
	}
	return j.decide(ctx, w.Record)
}

// read decides a read.
func (j *judge) read(ctx context.Context, w *write) verdict {
	a := j.policy.Authorize(ctx, &w.access)
	switch {
	case a.Pending != nil:
		return verdict{unknown: isPending}
	case !a.Allowed && !a.Denied && j.outside:
		return verdict{unknown: isOutside}
	case !a.Allowed:
		return verdict{stage: "authorization", failure: refusal(a)}
	case w.access.IsResource && !j.serves(&w.access):
		return verdict{stage: "authorization", failure: failure{message: "it is not served any more"}}
	}
	return verdict{}
}

// serves reports whether the policy serves the resource of a request.
func (j *judge) serves(a *policy.Request) bool {
	return slices.Contains(policy.Own[a.Group], a.Resource) || j.policy.Version(schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource}) != nil
}

func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// readRequest sets the request that is authorized, also for a read and for a path that is no resource.
func (w *write) readRequest() bool {
	if !reads(w.request.GetVerb()) && w.Object != nil && w.Object.GetResource() != "" {
		return w.readAccess()
	}
	target, err := url.ParseRequestURI(call.WithoutMoment(w.request.GetUri()))
	if err != nil {
		return false
	}
	info, err := call.RequestInfo(&http.Request{Method: http.MethodGet, URL: target})
	if err != nil {
		return false
	}
	actor := w.Meta.GetActor()
	w.access = policy.Request{User: actor.GetUser(), UID: actor.GetUid(), Groups: actor.GetGroups(), Verb: w.request.GetVerb(), Path: info.Path}
	for _, x := range actor.GetExtra() {
		if w.access.Extra == nil {
			w.access.Extra = map[string][]string{}
		}
		w.access.Extra[x.GetKey()] = x.GetValues()
	}
	if info.IsResourceRequest {
		a := &w.access
		a.IsResource, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name = true, info.APIGroup, info.APIVersion, info.Resource, info.Subresource, info.Namespace, info.Name
		if a.Verb == "list" || a.Verb == "watch" {
			a.Selectors = policy.ParseSelectors(info.FieldSelector, info.LabelSelector)
		}
	}
	return true
}

// restore sets the objects of a write that was refused: the one before it, and the one that it asked for in a version. unknown says
// why they cannot be told.
func (w *write) restore(ctx context.Context, v *policy.Version, e *eventlog.Event, d Decided) (unknown string, err error) {
	verb := w.access.Verb
	switch verb {
	case "create", "update", "patch", "delete":
	case "deletecollection":
		return isCollection, nil
	default:
		return isUnreadable, nil
	}
	if verb != "create" {
		before, known, err := d.Before(ctx, w.Object, w.Revision)
		if err != nil {
			return "", err
		}
		switch {
		case !known || before == nil && !w.applies():
			return isAbsent, nil
		case before == nil:
			w.Previous = 0
		default:
			w.Previous, w.Before, w.Payload = before.Revision, before.Written(), before.Payload
		}
	}
	body := e.Content(logpb.Role_ROLE_REQUEST)
	if verb == "delete" {
		w.Request = body // its options
		return "", nil
	}
	switch {
	case len(body) == 0 || e.Meta.GetDecision().GetBodyCut():
		return isBodyless, nil
	case bytes.Contains(body, []byte(`"hmac-sha256:`)):
		return isHashed, nil
	}
	w.Request = body
	switch {
	case verb == "patch" && w.Before != nil:
		return "", nil // it is applied when the objects are read
	case w.access.Subresource != "scale":
		w.Payload = w.placed(body)
	case v != nil && v.Scale != nil: // else it is not served
		w.Payload = w.scaled(v.Scale)
	}
	if w.Payload == nil {
		return isUnreadable, nil
	}
	return "", nil
}

// scaled returns the object before a write of its Scale, with the replicas of the Scale in the body; nil if it cannot be read.
func (w *write) scaled(s *schemas.Scale) []byte {
	body, err := w.bodyJSON()
	if err != nil {
		return nil
	}
	var scale struct {
		Spec struct {
			Replicas int64 `json:"replicas"`
		} `json:"spec"`
	}
	var content map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &scale) != nil || kjson.UnmarshalCaseSensitivePreserveInts(w.Before, &content) != nil {
		return nil
	}
	if s.Set(content, scale.Spec.Replicas) != nil {
		return nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		return nil
	}
	return text
}

// placed returns a body as JSON, with the metadata that the server would have set; nil if it cannot be read.
func (w *write) placed(body []byte) []byte {
	if w.mediaType() == negotiate.YAML || w.applies() {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil
		}
	}
	var content map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &content) != nil {
		return nil
	}
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	if namespace := w.Object.GetNamespace(); meta["namespace"] == nil && namespace != "" {
		meta["namespace"] = namespace
	}
	if generate, _ := meta["generateName"].(string); meta["name"] == nil && generate != "" {
		meta["name"] = generate + "xxxxx"
	}
	var before struct {
		Metadata map[string]any `json:"metadata"`
	}
	if w.Before != nil && kjson.UnmarshalCaseSensitivePreserveInts(w.Before, &before) == nil {
		for _, name := range []string{"uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName", "selfLink"} {
			if value, has := before.Metadata[name]; has { // the server sets them
				meta[name] = value
			}
		}
	}
	placed, err := json.Marshal(content)
	if err != nil {
		return nil
	}
	return placed
}

// countRequest adds a request that would be decided otherwise.
func (f *flips) countRequest(e *eventlog.Event, is, was verdict, o *Options) {
	refused := is.stage != ""
	by, message := is, "the new policy refuses it"
	if !refused {
		by, message = was, "the new policy allows it"
	}
	q, r := e.Meta.GetRequest(), e.Meta.GetDecision().GetRevision()
	path, _, _ := strings.Cut(q.GetUri(), "?")
	resource := path
	if e.Meta.GetObject().GetResource() != "" {
		if resource = placeOf(e.Meta.GetObject()).String(); q.GetSubresource() != "" {
			resource += "/" + q.GetSubresource()
		}
	}
	k := flipKey{e.Meta.GetActor().GetUser(), q.GetVerb(), resource, by.stage, by.rule, by.path, refused}
	g := &plan.Flip{
		Refused: refused, User: k.user, Verb: k.verb, Resource: resource, Stage: by.stage, Rule: by.rule, Path: by.path, Source: by.source,
		Count: 1, First: r, Last: r, Message: message,
	}
	if at := placeOf(e.Meta.GetObject()).GroupResource; refused && o.mayName(at) && !o.secret(at) {
		g.Message = by.message
	}
	if id := q.GetAuditId(); id != "" {
		g.AuditIDs = []string{id}
	}
	f.merge(k, g, by.failure)
}
