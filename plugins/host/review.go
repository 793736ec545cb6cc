package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"stele.dev/stele/plugins/admissionpb"
)

const (
	// reviewBytes is the maximum size of the objects in a review, which must fit into a message of 16 MiB.
	reviewBytes = 14 << 20
	// changeBytes is how much larger than the objects of a review its answer may be.
	changeBytes = 1 << 20
	// forbidden is the HTTP status of a refusal without one.
	forbidden = 403
	// notesMax is the maximum number of warnings, and of audit annotations, of an answer.
	notesMax = 32
)

// Review is the answer of a plugin about a write.
type Review struct {
	// Allowed is set if the write may go on.
	Allowed bool
	// Code is the HTTP status of a refusal, Reason its reason in the API. Message is for the user.
	Code            int
	Reason, Message string
	Warnings        []string
	Annotations     map[string]string
	// Patch is a change of the object as a JSON Patch, Object the whole changed object. At most one is set.
	Patch, Object []byte
	// Detail is for operators.
	Detail string
	// Failed is set if the plugin gave no verdict. Caller is set, too, if the cause is the caller, so that the failure policy
	// must not admit the write: a user must not bypass a plugin by not waiting for it, by a write that cannot be sent, or by
	// keeping the plugin busy. Busy is set if the plugin had no place for the review.
	Failed, Caller, Busy bool
	// Cached is set if the answer comes from the cache.
	Cached bool
}

// Changes reports whether the plugin changes the object.
func (r *Review) Changes() bool { return len(r.Patch) > 0 || len(r.Object) > 0 }

// Review asks a plugin about a write, and returns within the timeout, of which 0 is 1 s. If ctx is done earlier, that is a
// failure of the caller. The question must not be changed, not even afterwards. The caller must not change the answer.
func (b *Binding) Review(ctx context.Context, name string, timeout time.Duration, q *admissionpb.ReviewRequest) Review {
	bound := b.plugins[name]
	if bound == nil {
		return Review{Failed: true, Detail: "the policy has no such plugin"}
	}
	if timeout <= 0 {
		timeout = time.Second
	}
	if bound.spec.Shadow {
		return bound.reviewer.shadow(timeout, q)
	}
	return bound.reviewer.counted(ctx, "enforced", timeout, q)
}

// reviewer asks a plugin to review writes.
type reviewer struct {
	*bound
	verdicts *prometheus.CounterVec
	cache    cache[Review]
	shadows  atomic.Int64 // reviews in shadow mode that are in progress
}

func newReviewer(b *bound) *reviewer {
	return &reviewer{bound: b, cache: newCache[Review](), verdicts: b.plugin.host.metrics.reviews.MustCurryWith(prometheus.Labels{"plugin": b.spec.Name})}
}

// counted reviews a write, and counts the result.
func (d *reviewer) counted(ctx context.Context, mode string, timeout time.Duration, q *admissionpb.ReviewRequest) (r Review) {
	defer func() {
		if x := recover(); x != nil {
			r = d.failed(d.panicked(x))
		}
		d.verdicts.WithLabelValues(verdict(&r), stages[q.GetStage()], mode).Inc()
	}()
	return d.review(ctx, timeout, q)
}

// stages are the metric labels of the stages.
var stages = map[admissionpb.Stage]string{
	admissionpb.Stage_STAGE_MUTATION:   "mutation",
	admissionpb.Stage_STAGE_VALIDATION: "validation",
}

// verdict returns the metric label of an answer.
func verdict(r *Review) string {
	switch {
	case r.Failed:
		return "failed"
	case !r.Allowed:
		return "refused"
	case r.Changes():
		return "changed"
	}
	return "allowed"
}

// shadow lets the plugin review a write without effect, and without a caller that waits.
func (d *reviewer) shadow(timeout time.Duration, q *admissionpb.ReviewRequest) Review {
	if d.shadows.Add(1) > int64(d.plugin.host.options.MaxInFlight) {
		d.shadows.Add(-1)
		d.count(&failure{why: failedBusy, detail: "too many reviews are in progress"})
		return Review{Allowed: true, Detail: "shadow: too many reviews are in progress"}
	}
	go func() {
		defer d.shadows.Add(-1)
		r := d.counted(d.plugin.host.ctx, "shadow", timeout, q)
		d.log(&r, q)
	}()
	return Review{Allowed: true, Detail: "shadow: the plugin is being asked, and has no say"}
}

// log logs what a plugin in shadow mode would have refused or changed.
func (d *reviewer) log(r *Review, q *admissionpb.ReviewRequest) {
	if r.Failed || r.Allowed && !r.Changes() {
		return
	}
	if dropped, ok := d.plugin.failures.take(); ok {
		d.plugin.log.Info("a plugin in shadow mode has reviewed a write", withDropped(dropped, "rule", q.GetRule(), "verdict", verdict(r), "message", r.Message,
			"user", short(q.GetUser().GetName()), "operation", q.GetOperation(), "target", short(reviewed(q)))...)
	}
}

// reviewed returns the object of a review as people write it: databases/status.example.com shop/orders.
func reviewed(q *admissionpb.ReviewRequest) string {
	r := q.GetResource()
	return targetName(r.GetResource(), r.GetSubresource(), r.GetGroup(), q.GetNamespace(), q.GetName())
}

// review returns the cached answer, or asks the plugin.
func (d *reviewer) review(ctx context.Context, timeout time.Duration, q *admissionpb.ReviewRequest) Review {
	if size := len(q.GetObject()) + len(q.GetOldObject()) + len(q.GetOptions()); size > reviewBytes {
		return d.failed(&failure{why: failedError, caller: true, detail: fmt.Sprintf("the objects have %d bytes, and a plugin gets at most %d", size, reviewBytes)})
	}
	var k key
	if d.spec.CacheTTL > 0 {
		k = reviewKey(q)
		if r, found := d.cache.get(k, time.Now()); found {
			d.metrics.hits.Inc()
			r.Cached = true
			return r
		}
	}
	// If the deadline of the caller is the earlier one, that is no silence of the plugin.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	var answer *admissionpb.ReviewResponse
	f := d.ask(limited, &question{user: q.GetUser().GetName(), message: q, timeout: timeout, ask: func(ctx context.Context, i *instance) (err error) {
		answer, err = i.admission.Review(ctx, q, grpc.MaxCallRecvMsgSize(changeBytes+2*(len(q.GetObject())+len(q.GetOldObject()))))
		return err
	}})
	switch {
	case f != nil && ctx.Err() != nil: // the caller's deadline may have been first
		return d.failed(&failure{why: failedCanceled, detail: "the request was given up: " + ctx.Err().Error(), caller: true})
	case f != nil:
		return d.failed(f)
	}
	r, keep, f := readReview(q, answer)
	if f != nil {
		return d.failed(f)
	}
	if keep = min(keep, d.spec.CacheTTL); keep > 0 {
		d.cache.put(k, r, r.size(), time.Now().Add(keep))
	}
	return r
}

// failed counts and logs a failure.
func (d *reviewer) failed(f *failure) Review {
	d.count(f)
	return Review{Failed: true, Busy: f.why == failedBusy, Caller: f.caller, Detail: f.detail}
}

// readReview validates an answer, and returns for how long it may be cached.
func readReview(q *admissionpb.ReviewRequest, a *admissionpb.ReviewResponse) (r Review, keep time.Duration, f *failure) {
	wrong := func(format string, args ...any) (Review, time.Duration, *failure) {
		return Review{}, 0, &failure{why: failedAnswer, detail: fmt.Sprintf(format, args...)}
	}
	r = Review{Warnings: cutAll(a.GetWarnings()), Annotations: cutNotes(a.GetAuditAnnotations())}
	switch a.GetVerdict() {
	case admissionpb.Verdict_VERDICT_REFUSED: // whatever else is wrong with it: a refusal must not become a failure, which may be ignored
		r.Code, r.Reason, r.Message = int(a.GetCode()), a.GetReason(), cut(a.GetMessage())
		if r.Code < 400 || r.Code > 599 {
			r.Code, r.Reason = forbidden, "Forbidden"
		}
		keep, _ = keepOf(a.GetCacheTtl())
		return r, keep, nil
	case admissionpb.Verdict_VERDICT_ALLOWED:
		r.Allowed, r.Message = true, cut(a.GetMessage())
	default:
		return wrong("the verdict %s is unknown", a.GetVerdict())
	}
	r.Patch, r.Object = a.GetPatch(), a.GetObject()
	switch {
	case r.Changes() && q.GetStage() != admissionpb.Stage_STAGE_MUTATION:
		return wrong("it changes the object, and may only do that in the stage mutation")
	case r.Changes() && len(q.GetObject()) == 0:
		return wrong("it changes an object that is deleted")
	}
	keep, ok := keepOf(a.GetCacheTtl())
	if !ok {
		return wrong("the cache_ttl %s is not a valid duration", a.GetCacheTtl())
	}
	return r, keep, nil
}

// keepOf returns for how long an answer may be cached: not at all, if it does not say so.
func keepOf(ttl *durationpb.Duration) (keep time.Duration, ok bool) {
	if ttl == nil {
		return 0, true
	}
	if ttl.CheckValid() != nil || ttl.AsDuration() < 0 {
		return 0, false
	}
	return ttl.AsDuration(), true
}

func cutAll(texts []string) (list []string) {
	for _, text := range texts[:min(len(texts), notesMax)] {
		list = append(list, cut(text))
	}
	return list
}

// cutNotes returns the first annotations by name, with names and values that are not too long.
func cutNotes(notes map[string]string) map[string]string {
	if len(notes) == 0 {
		return nil
	}
	kept := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		if len(kept) < notesMax && len(name) <= textBytes {
			kept[name] = cut(notes[name])
		}
	}
	return kept
}

// size returns how much memory an answer takes, about.
func (r *Review) size() int {
	n := len(r.Message) + len(r.Reason) + len(r.Patch) + len(r.Object)
	for _, w := range r.Warnings {
		n += len(w)
	}
	for name, value := range r.Annotations {
		n += len(name) + len(value)
	}
	return n
}

// reviewKeys are reused, so that making a key takes no memory.
var reviewKeys = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// reviewKey returns the key of a review: SHA-256 of all of its fields with their lengths. Two reviews have the same key
// if and only if they differ in nothing but uid and time.
func reviewKey(q *admissionpb.ReviewRequest) key {
	buffer := reviewKeys.Get().(*[]byte)
	defer reviewKeys.Put(buffer)
	k := append((*buffer)[:0], 'r')
	k = binary.AppendUvarint(k, uint64(q.GetStage()))
	k = binary.AppendUvarint(k, uint64(q.GetOperation()))
	if q.GetDryRun() {
		k = append(k, 1)
	} else {
		k = append(k, 0)
	}
	for _, kind := range [...]*admissionpb.Kind{q.GetKind(), q.GetRequestKind()} {
		k = appendTexts(k, []string{kind.GetGroup(), kind.GetVersion(), kind.GetKind()})
	}
	for _, r := range [...]*admissionpb.Resource{q.GetResource(), q.GetRequestResource()} {
		k = appendTexts(k, []string{r.GetGroup(), r.GetVersion(), r.GetResource(), r.GetSubresource()})
	}
	k = appendTexts(k, []string{q.GetRule(), q.GetNamespace(), q.GetName()})
	k = appendUser(k, q.GetUser())
	for _, text := range [...][]byte{q.GetObject(), q.GetOldObject(), q.GetOptions()} {
		k = append(binary.AppendUvarint(k, uint64(len(text))), text...)
	}
	k = binary.AppendUvarint(k, uint64(len(q.GetNamespaceLabels())))
	for _, name := range slices.Sorted(maps.Keys(q.GetNamespaceLabels())) {
		k = appendText(appendText(k, name), q.GetNamespaceLabels()[name])
	}
	if cap(k) <= 64<<10 {
		*buffer = k // which may have grown
	}
	return sha256.Sum256(k)
}

// targetName returns an object in a resource as people write it: databases/status.example.com shop/orders.
func targetName(resource, subresource, group, namespace, name string) string {
	named := func(sep, part string) string {
		if part == "" {
			return ""
		}
		return sep + part
	}
	on := resource + named("/", subresource) + named(".", group)
	return on + named(" ", strings.TrimPrefix(namespace+named("/", name), "/"))
}
