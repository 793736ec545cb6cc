package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// Prefixes of the audit annotations of webhooks, as in kube-apiserver. What follows says the round, and the place among the
// webhooks of the policy that may be about the write.
const (
	mutationAnnotation   = "mutation.webhook.admission.k8s.io/"
	patchAnnotation      = "patch.webhook.admission.k8s.io/"
	validationAnnotation = "validating.webhook.admission.k8s.io/"
	failedOpen           = "failed-open."
)

// mutatingReviewers returns the webhooks and plugins that may change the object of a write.
func (p *Pipeline) mutatingReviewers(r *Request) (list []*mutator) {
	for i, x := range p.reviewersOf(r, true) {
		invoked := false
		list = append(list, &mutator{
			id: x.ID, source: x.Source.String(), order: x.Order, reinvoked: x.Again,
			run: func(ctx context.Context, r *Request, round int) (asked, changed bool, err error) {
				if round > 0 && !invoked { // as in kube-apiserver, nobody is asked for the first time then
					return false, false, nil
				}
				invoked, changed, err = p.reviewMutating(ctx, r, x, round, i)
				return invoked, changed, err
			},
		})
	}
	return list
}

// reviewersOf returns the reviewers that may be about a write.
func (p *Pipeline) reviewersOf(r *Request, mutating bool) (list []*admission.Reviewer) {
	all := admission.MustOf(r.Tip.Policy).Reviewers(r.Kind, r.Info.Subresource, r.operation())
	for i := range all {
		if all[i].Mutating == mutating {
			list = append(list, &all[i])
		}
	}
	return list
}

// reviewMutating asks one reviewer, and makes the object what it answers.
func (p *Pipeline) reviewMutating(ctx context.Context, r *Request, x *admission.Reviewer, round, index int) (asked, changed bool, err error) {
	write, err := r.attributes()
	if err != nil {
		return false, false, err
	}
	concerned, err := p.concerned(ctx, r, []*admission.Reviewer{x}, write)
	if err != nil || len(concerned) == 0 {
		return false, false, err
	}
	q, err := r.question(x, write)
	if err != nil {
		return false, false, err
	}
	o := p.askAside(ctx, r, []review.Question{q})[0]
	place := fmt.Sprintf("round_%d_index_%d", round, index)
	r.noteVerdict(o, mutationAnnotation, place)
	if o.Err == nil && o.Verdict != nil {
		var paths []string
		if paths, err = r.applyVerdict(x, q.Review, o.Verdict, place); err != nil {
			o.Err = err
		}
		if changed = len(paths) > 0; changed {
			r.mutated(mutatorOf(x.Reviewer), x.ID, x.Source.String(), paths, round)
			if r.trace != nil {
				r.trace.Consider(policy.Considered{Rule: x.ID, Source: x.Source.String(), Verdict: policy.VerdictChanges + strings.Join(paths, ", ")})
			}
		}
	}
	if x.Webhook != nil {
		r.annotate(mutationAnnotation+place, mutationNote{x.ID, x.Name(), changed})
	}
	return true, changed, o.Err
}

// mutationNote is the value of a mutation annotation, and patchNote that of a patch annotation.
type mutationNote struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

type patchNote struct {
	Configuration string          `json:"configuration"`
	Webhook       string          `json:"webhook"`
	Patch         json.RawMessage `json:"patch,omitempty"`
	PatchType     string          `json:"patchType,omitempty"`
}

func mutatorOf(r *policy.Reviewer) logpb.Mutator {
	if r.Webhook != nil {
		return logpb.Mutator_MUTATOR_WEBHOOK
	}
	return logpb.Mutator_MUTATOR_PLUGIN
}

// applyVerdict makes the object what a reviewer has made of the one that it was asked about, and returns what has changed.
func (r *Request) applyVerdict(x *admission.Reviewer, q *review.Review, v *review.Verdict, place string) (paths []string, err error) {
	next := []byte(v.Object)
	if len(v.Patch) > 0 {
		var operations []json.RawMessage
		if err := json.Unmarshal(v.Patch, &operations); err == nil && len(operations) == 0 {
			return nil, nil
		}
		if q.Object == nil {
			return nil, review.Internal(x.Reviewer, fmt.Errorf("admission %s %q attempted to modify the object, which is not supported for this operation", x.What(), x.Name()))
		}
		if next, err = patch.JSON(q.Object, v.Patch); err != nil {
			return nil, review.Internal(x.Reviewer, fmt.Errorf("the patch of the admission %s %q cannot be applied: %w", x.What(), x.Name(), err))
		}
		if x.Webhook != nil && r.RecordsBody() && !r.Sensitive() {
			r.notePatch(x, v.Patch, place)
		}
	}
	if len(next) == 0 || string(next) == string(q.Object) {
		return nil, nil
	}
	meta, content, err := decodeObject(next)
	if err != nil {
		return nil, review.Internal(x.Reviewer, fmt.Errorf("the admission %s %q made an object that cannot be decoded: %w", x.What(), x.Name(), err))
	}
	if kind := x.As.Seen(r.Info.Subresource).GroupVersionKind(); content["kind"] != kind.Kind || content["apiVersion"] != kind.GroupVersion().String() {
		return nil, review.Internal(x.Reviewer, fmt.Errorf("the admission %s %q changed apiVersion or kind of the object", x.What(), x.Name()))
	}
	if content, err = x.Unshown(r.Kind, r.Info.Subresource, content, r.Object.Content); err != nil {
		return nil, review.Internal(x.Reviewer, err)
	}
	if err := r.Replace(&policy.Object{Meta: meta, Content: content}); err != nil {
		return nil, review.Made(x.Reviewer, err)
	}
	object, _, err := r.Objects()
	if err != nil {
		return nil, err
	}
	after, err := r.encodeForReviewer(x, object, r.oldVersion())
	if err != nil || string(after) == string(q.Object) {
		return nil, err
	}
	return review.Difference(q.Object, after)
}

// notePatch adds the patch of a webhook to the audit log. A patch that is too long for an annotation is left out of it, so that
// the rest can be read.
func (r *Request) notePatch(x *admission.Reviewer, patch []byte, place string) {
	note := patchNote{x.ID, x.Name(), patch, "JSONPatch"}
	if text, err := json.Marshal(note); err != nil || len(text) > call.MaxAnnotation {
		note.Patch = nil
	}
	r.annotate(patchAnnotation+place, note)
}

// decodeObject decodes an object that a reviewer has made.
func decodeObject(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, nil, err
	}
	meta, _, err := metadata.Decode(content)
	delete(content, "metadata")
	return meta, content, err
}

// concerned returns the reviewers whose selectors and conditions match a write. What they read of the namespace is checked
// when the write is committed.
func (p *Pipeline) concerned(ctx context.Context, r *Request, all []*admission.Reviewer, write *admission.Attributes) (list []*admission.Reviewer, err error) {
	rules := admission.MustOf(r.Tip.Policy)
	for _, x := range all {
		concerns, err := rules.Concerns(ctx, x, r.Kind, write)
		if err != nil {
			return nil, review.Unmatched(x.Reviewer, r.Resource(), r.Key.Name, err)
		}
		if concerns && r.mayAsk(x) {
			list = append(list, x)
		}
	}
	r.seeNamespace(write)
	return list, nil
}

// seeNamespace makes the commit depend on the namespace, if rules have read it.
func (r *Request) seeNamespace(write *admission.Attributes) {
	if write.AskedNamespace() {
		r.SawNamespace = r.Tip.Objects.Get(commit.Namespaces, "", r.Key.Namespace)
	}
}

// mayAsk reports whether a reviewer that concerns the write is asked. An explanation asks none that may have side effects, and
// a request that is decided again under another policy asks nobody.
func (r *Request) mayAsk(x *admission.Reviewer) bool {
	r.reviewed = append(r.reviewed, x.Reviewer)
	switch {
	case review.Answers(r.HTTP.Context()) != nil: // others answer, and have no side effects
		return true
	case r.Mode.Is(call.Replayed):
		return false
	case r.Mode.Is(call.Explained) && x.SideEffects != "None":
		if r.trace == nil { // an object of a collection
			return false
		}
		r.trace.Consider(policy.Considered{Rule: x.ID, Source: x.Source.String(), Verdict: "would be asked; an explanation does not ask it, because it may have side effects"})
		return false
	}
	return true
}

// question returns what a reviewer is asked about a write.
func (r *Request) question(x *admission.Reviewer, write *admission.Attributes) (q review.Question, err error) {
	sub := r.Info.Subresource
	v := &review.Review{
		UID:  types.UID(uuid.NewString()),
		Kind: x.As.Seen(sub).GroupVersionKind(), Resource: x.As.GroupVersionResource(), Subresource: sub,
		RequestKind: r.Kind.Seen(sub).GroupVersionKind(), RequestResource: r.Kind.GroupVersionResource(), RequestSubresource: sub,
		Namespace: r.Key.Namespace, Name: r.Key.Name, Operation: write.Operation, User: r.User, DryRun: r.Dry(),
	}
	q = review.Question{Policy: r.Tip.Policy, Reviewer: x.Reviewer, Review: v}
	version := r.oldVersion()
	if v.Object, err = r.encodeForReviewer(x, write.Object, version); err != nil {
		return q, err
	}
	if v.OldObject, err = r.encodeForReviewer(x, write.Old, version); err != nil {
		return q, err
	}
	if x.Webhook == nil {
		v.NamespaceLabels = write.Labels()
		r.seeNamespace(write)
	}
	options, err := r.OptionsObject(r.Creates())
	if err == nil {
		v.Options, err = json.Marshal(options)
	}
	return q, err
}

// oldVersion returns the resourceVersion of the stored object; "" if there is none.
func (r *Request) oldVersion() string {
	if r.Old == nil {
		return ""
	}
	return strconv.FormatUint(r.Old.Revision, 10)
}

// encodeForReviewer returns an object as JSON, in the version in which a reviewer sees it.
func (r *Request) encodeForReviewer(x *admission.Reviewer, o *policy.Object, resourceVersion string) ([]byte, error) {
	as, o, err := x.Shown(r.Kind, r.Info.Subresource, o)
	if o == nil || err != nil {
		return nil, err
	}
	meta := *o.Meta
	meta.ResourceVersion = resourceVersion
	kind := as.GroupVersionKind()
	return canonical.Object(kind.GroupVersion().String(), kind.Kind, &meta, o.Content)
}

// askAside asks reviewers while the request holds nothing that others wait for: it gives back its seats and its turn at the
// object. Other writes of the object may come first; then this one meets a conflict at the commit, and is decided again.
func (p *Pipeline) askAside(ctx context.Context, r *Request, questions []review.Question) []*review.Outcome {
	r.turn.End()
	defer r.pause()()
	return p.reviewers.AskAll(ctx, questions)
}

// pause gives back the seats of the request, or of the request that it is a part of, until resume is called.
func (r *Request) pause() (resume func()) {
	whole := r
	if r.whole != nil {
		whole = r.whole
	}
	whole.pauses.CompareAndSwap(nil, &pauses{})
	return whole.pauses.Load().begin(&whole.Call)
}

// pauses counts the parts of a request that wait for others. The request has its seats unless one does.
type pauses struct {
	mu     sync.Mutex
	n      int
	resume func()
	began  time.Time     // when the pause that lasts began
	sum    time.Duration // of those that have ended
	told   time.Duration // the part of sum that the metrics of admission have
}

// paused returns how long the request has waited for others, as far as the waits have ended.
func (r *Request) paused() time.Duration {
	p := r.pauses.Load()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum
}

// pausedSince returns the part of paused that an earlier call has not returned.
func (r *Request) pausedSince() (d time.Duration) {
	if p := r.pauses.Load(); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		d, p.told = p.sum-p.told, p.sum
	}
	return d
}

func (p *pauses) begin(c *call.Call) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n == 1 {
		p.began = time.Now()
		p.resume = c.PauseSeats()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.n--; p.n == 0 {
			p.sum += time.Since(p.began)
			p.resume()
		}
	}
}

// noteVerdict adds what a reviewer said besides its decision to the answer, the explanation and the audit log.
func (r *Request) noteVerdict(o *review.Outcome, prefix, place string) {
	verdict, said := "allows it", ""
	switch {
	case o.Failure != nil && o.Err == nil:
		verdict, said = "cannot be asked, and its failure policy is Ignore", explained(o.Failure)
		if o.Webhook != nil {
			r.Annotate(failedOpen+prefix+place, o.Name())
		}
	case o.Failure != nil:
		verdict, said = "cannot be asked", explained(o.Failure)
	case o.Err != nil:
		verdict, said = "refuses it", o.Err.Error()
	}
	if r.trace != nil {
		if o.Verdict != nil && len(o.Verdict.Warnings) > 0 {
			said = strings.TrimPrefix(said+"; warnings: "+strings.Join(o.Verdict.Warnings, "; "), "; ")
		}
		r.trace.Consider(policy.Considered{Rule: o.ID, Source: o.Source.String(), Verdict: verdict, Reason: call.UTF8(said)})
	}
	if o.Err == nil {
		asked := &logpb.Review{Rule: o.ID, Source: o.Source.String(), By: mutatorOf(o.Reviewer), Ignored: o.Failure != nil}
		if o.Verdict != nil {
			asked.Program = o.Verdict.Program
		}
		r.reviews = append(r.reviews, asked)
	}
	if o.Verdict == nil {
		return
	}
	for _, text := range o.Verdict.Warnings {
		r.Warn(text)
	}
	for key, value := range o.Verdict.AuditAnnotations {
		r.Annotate(o.Name()+"/"+key, value)
	}
}

// explained returns why a reviewer could not be asked, for explanations.
func explained(err error) string {
	if call := (*review.CallError)(nil); errors.As(err, &call) {
		return call.Explained()
	}
	return err.Error()
}

// annotate adds an annotation with a value of JSON to the audit log.
func (r *Request) annotate(key string, value any) {
	text, err := json.Marshal(value)
	if err == nil {
		r.Annotate(key, string(text))
	}
}

// reviewValidating asks plugins, and then webhooks, all of a sort at once. It reports all refusals.
func (p *Pipeline) reviewValidating(ctx context.Context, r *Request, write *admission.Attributes) error {
	all := p.reviewersOf(r, false)
	if len(all) == 0 {
		return nil
	}
	list, err := p.concerned(ctx, r, all, write)
	if err != nil {
		return err
	}
	for _, webhooks := range []bool{false, true} {
		var questions []review.Question
		for _, x := range list {
			if (x.Webhook != nil) != webhooks {
				continue
			}
			q, err := r.question(x, write)
			if err != nil {
				return err
			}
			questions = append(questions, q)
		}
		if len(questions) == 0 {
			continue
		}
		if err := r.conclude(p.askAside(ctx, r, questions)); err != nil {
			return err
		}
	}
	return nil
}

// conclude returns the error of a write for the outcomes of validating reviewers: that of the first refusal, with the
// messages and causes of the others.
func (r *Request) conclude(outcomes []*review.Outcome) error {
	var refusals []error
	for i, o := range outcomes {
		r.noteVerdict(o, validationAnnotation, fmt.Sprintf("round_0_index_%d", i))
		if o.Err == nil {
			continue
		}
		refusals = append(refusals, o.Err)
		r.findings = append(r.findings, &logpb.Admission{Rule: o.ID, Source: o.Source.String(), Action: "Deny", Message: call.UTF8(o.Err.Error())})
	}
	return review.Join(refusals)
}
