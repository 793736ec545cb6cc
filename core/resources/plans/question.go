package plans

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// Reasons why a recorded request cannot be decided again. Others are those of [decide.Engine].
const (
	isErased     = "its object, or the object that it replaced, has been erased"
	isOutside    = "an authorizer outside of the policy may decide it"
	isUnlike     = "the policy that allowed it refuses it when it is decided again"
	wasUnlike    = "the policy that refused it allows it when it is decided again"
	isUnreadable = "its path or its body cannot be read"
	isForgotten  = "its namespace of that time is not kept"
	isReviewed   = "a webhook or a plugin changed its object"
	isChanged    = "a rule changed its result, and what it came to before that cannot be told: its body was not kept"
	isBodyless   = "its body was not kept, or only in part"
	isHashed     = "its body has secrets, which are recorded as hashes"
	isPatch      = "it is a patch that cannot be applied again"
	isAbsent     = "its object was not there, or is not kept any more"
	isTooMuch    = "a rule of admission reads stored objects, and more refusals depend on them than a plan keeps in memory"
	isCounted    = "it was counted, and not recorded by itself"
)

var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut,
	"patch": http.MethodPatch, "delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// writes reports whether a request with a verb writes one object.
func writes(verb string) bool {
	return verb == "create" || verb == "update" || verb == "patch" || verb == "delete"
}

// question returns the question that a record asks, without what it wrote; nil if its path cannot be read.
func (r *Record) question() *decide.Question {
	asked := r.Meta.GetRequest()
	uri, verb := asked.GetUri(), asked.GetVerb()
	target, err := url.ParseRequestURI(call.WithoutMoment(uri))
	if err != nil {
		return nil
	}
	h := &http.Request{Method: cmp.Or(methods[verb], strings.ToUpper(verb)), URL: target, Header: http.Header{"User-Agent": {asked.GetUserAgent()}}}
	if mediaType := asked.GetMediaType(); mediaType != "" {
		h.Header["Content-Type"] = []string{mediaType}
	}
	info, err := call.RequestInfo(h)
	if err != nil || r.refusal == nil && !info.IsResourceRequest {
		return nil
	}
	info.Verb = verb
	met := r.Revision
	if r.refusal == nil {
		met-- // it was decided before it was written
	}
	actor := r.Meta.GetActor()
	as := &user.DefaultInfo{Name: actor.GetUser(), UID: actor.GetUid(), Groups: actor.GetGroups()}
	for _, x := range actor.GetExtra() {
		if as.Extra == nil {
			as.Extra = map[string][]string{}
		}
		as.Extra[x.GetKey()] = x.GetValues()
	}
	return &decide.Question{
		HTTP: h, Requester: as, User: as, Info: info, Write: info.IsResourceRequest && (writes(verb) || r.refusal == nil), OfPast: call.WithoutMoment(uri) != uri,
		Tip:     &commit.Tip{Head: eventlog.Head{Revision: met}, Time: r.Time, Objects: &objects.State{}, Policies: &policies.State{}},
		AuditID: asked.GetAuditId(), Received: time.Unix(0, asked.GetReceivedUnixNano()),
	}
}

// written returns what the log has of a write.
func (r *Record) written() *decide.Recorded {
	verb, changes := r.Meta.GetRequest().GetVerb(), r.Meta.GetDecisions().GetMutations()
	w := &decide.Recorded{Body: r.Request, UID: r.Object.GetUid(), Name: r.Object.GetName()}
	w.Part = verb == "deletecollection"
	switch deletes := w.Part || verb == "delete"; {
	case deletes:
		w.NoOptions = r.Request == nil
	case r.Request == nil:
		w.Result, w.Removed = r.Payload, r.Deleted
	}
	for _, m := range changes {
		if m.GetBy() != logpb.Mutator_MUTATOR_RULE {
			w.Missing = isReviewed + ": " + m.GetRule()
		}
	}
	switch {
	case r.Payload == nil || r.Previous != 0 && r.Before == nil:
		w.Missing = isErased
	case w.Missing == "" && len(changes) > 0 && r.Request == nil:
		w.Missing = isChanged
	}
	return w
}

// refused returns what the log has of a write that was refused.
func (r *Record) refused() *decide.Recorded {
	body := r.refusal.Content(logpb.Role_ROLE_REQUEST)
	w := &decide.Recorded{Body: body}
	switch verb := r.Meta.GetRequest().GetVerb(); {
	case verb == "delete" || verb == "deletecollection": // it may have none
	case !writes(verb):
		w.Missing = isUnreadable
	case len(body) == 0 || r.Meta.GetDecision().GetBodyCut():
		w.Missing = isBodyless
	case bytes.Contains(body, []byte(`"hmac-sha256:`)):
		w.Missing = isHashed
	}
	return w
}

// patches reports whether the request patches an object, of which it may see the managedFields.
func (r *Record) patches() bool {
	return r.Meta.GetRequest().GetVerb() == "patch" && (r.refusal != nil || r.Request != nil)
}

// applies reports whether the request is a server-side apply.
func (r *Record) applies() bool {
	asked := r.Meta.GetRequest()
	mediaType, _, _ := mime.ParseMediaType(asked.GetMediaType())
	return asked.GetVerb() == "patch" && types.PatchType(mediaType) == types.ApplyYAMLPatchType
}

// met returns the objects that a request met, as the policy of the judge shows them.
func (j *judge) met(ctx context.Context, r *Record, v *policy.Version) (*decide.State, error) {
	space, err := j.space(ctx, r)
	if errors.Is(err, history.ErrForgotten) {
		return &decide.State{Missing: isForgotten}, nil
	}
	if err != nil {
		return nil, err
	}
	before, missing, err := j.objectsBefore(ctx, r)
	if missing != "" || err != nil {
		return &decide.State{Missing: missing}, err
	}
	k := v.Kind.Stored()
	b := j.benches[k.GroupResource()]
	own := make([]objects.Version, 0, 1)
	for _, x := range before {
		if !r.patches() {
			x.Written, _ = metadata.Split(x.Written)
		}
		text, err := b.stored(x.Written)
		if err != nil {
			return nil, err
		}
		own = append(own, objects.Version{Payload: text, Revision: x.Revision})
	}
	state, err := objects.StateOf(b.kind, r.Revision, own)
	if err != nil {
		return nil, err
	}
	read := r.states[j.past]
	if read != nil {
		state = read.Beside(state)
	}
	if space != nil {
		state = state.Beside(space)
	}
	return &decide.State{State: state, Unread: read == nil}, nil
}

// objectsBefore returns the objects of its own kind that a request met: the one that it is about, or those of its collection. missing says
// why they are not known.
func (j *judge) objectsBefore(ctx context.Context, r *Record) (list []Object, missing string, err error) {
	switch verb := r.Meta.GetRequest().GetVerb(); {
	case r.refusal == nil && r.Before != nil:
		return []Object{{Revision: r.Previous, Written: r.Before}}, "", nil
	case r.refusal == nil || verb == "create":
		return nil, "", nil
	case verb == "deletecollection":
		for c, err := range j.decided.Collection(ctx, r.Object, r.Revision) {
			if errors.Is(err, history.ErrForgotten) || err == nil && c.Payload == nil {
				return nil, isAbsent, nil
			}
			if err != nil {
				return nil, "", err
			}
			list = append(list, Object{Revision: c.Revision, Written: c.Written()})
		}
		return list, "", nil
	}
	c, known, err := j.decided.Before(ctx, r.Object, r.Revision)
	switch {
	case err != nil:
		return nil, "", err
	case !known || c == nil && !r.applies():
		return nil, isAbsent, nil
	case c == nil:
		return nil, "", nil
	case c.Payload == nil:
		return nil, isErased, nil
	}
	return []Object{{Revision: c.Revision, Written: c.Written()}}, "", nil
}

// space returns the state with the namespace of a request; nil if it is in none, or if that was not there.
func (j *judge) space(ctx context.Context, r *Record) (*objects.State, error) {
	name, space := r.Object.GetNamespace(), r.space
	if name == "" {
		return nil, nil
	}
	if space == nil {
		payload, err := j.records.Namespace(ctx, name, r.Revision)
		if err != nil || payload == nil {
			return nil, err
		}
		return j.shownSpace(payload, r.Revision)
	}
	if space.lost {
		return nil, history.ErrForgotten
	}
	if space.payload == nil {
		return nil, nil
	}
	if known, is := j.spaces.Load(space); is {
		return known.(*objects.State), nil
	}
	state, err := j.shownSpace(space.payload, space.revision)
	if err == nil {
		j.spaces.Store(space, state)
	}
	return state, err
}

// shownSpace returns the state with a namespace.
func (j *judge) shownSpace(payload []byte, revision uint64) (*objects.State, error) {
	b := j.benches[commit.Namespaces]
	text, err := b.stored(payload)
	if err != nil {
		return nil, err
	}
	return objects.StateOf(b.kind, revision, []objects.Version{{Payload: text, Revision: revision}})
}
