package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

// bundle declares the pods of upstream's example API.
const bundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "pods.example.com": {
			group: "example.com"
			names: {kind: "Pod", plural: "pods"}
			storageVersion: "v1"
			versions: v1: {
				#schema: {spec?: {nodeName?: string, ...}, status?: {...}}
				selectableFields: [".spec.nodeName"]
			}
		}
	}
}
`

var (
	pods   = schema.GroupResource{Group: "example.com", Resource: "pods"}
	others = schema.GroupResource{Resource: "configmaps"}
	scheme = runtime.NewScheme()
	codec  = serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

// root is the prefix of the keys of pods. What follows is the name, after the namespace if there is one.
const root = "/pods/"

// adapter presents the committer and the objects of a control plane as upstream's storage: a write is a proposal with
// checks, a read takes a confirmed tip, a list of the past comes from the recent changes, and a watch is a
// watch of the projection. What upstream keeps below a key, stele keeps as an object with a namespace and a name.
type adapter struct {
	storage.APIObjectVersioner
	committer *commit.Committer
	// compacted is the oldest revision that is read. Stele forgets by memory and by age, never up to a revision that
	// somebody chooses.
	compacted atomic.Uint64
	// outdated makes each object outdated, so that an update writes it again even if nothing changed.
	outdated atomic.Bool
}

var _ storage.Interface = (*adapter)(nil)

func newAdapter(t *testing.T) *adapter {
	t.Helper()
	return &adapter{committer: planetest.Start(t, planetest.Options{Bundle: bundle}).Committer}
}

// place is where an object is.
type place struct{ namespace, name string }

// parse returns where the object with a key is. ok is false if the key has more parts than a namespace and a name.
func parse(key string) (at place, ok bool) {
	rest := strings.TrimPrefix(key, root)
	namespace, name, both := strings.Cut(rest, "/")
	if !both {
		return place{"", namespace}, true
	}
	return place{namespace, name}, !strings.Contains(name, "/")
}

// key checks and parses the key of one object.
func key(key string) (string, place, error) {
	prepared, err := storage.PrepareKey(root, key, false)
	if err != nil {
		return "", place{}, err
	}
	at, ok := parse(prepared)
	if !ok {
		return "", place{}, fmt.Errorf("invalid key: %q is no namespace and name", key)
	}
	return prepared, at, nil
}

// Versioner implements storage.Interface.
func (a *adapter) Versioner() storage.Versioner { return a.APIObjectVersioner }

// decode decodes what clients would see of an object.
func decode(o *objects.Object, into runtime.Object) error {
	if into == nil {
		return nil
	}
	if err := runtime.SetZeroValue(into); err != nil {
		return err
	}
	if _, _, err := codec.Decode(o.JSON, nil, into); err != nil {
		return err
	}
	m, err := meta.Accessor(into)
	if err != nil {
		return err
	}
	annotations := m.GetAnnotations()
	own, has := annotations[ownName]
	if !has {
		return nil
	}
	if delete(annotations, ownName); len(annotations) == 0 {
		annotations = nil
	}
	m.SetAnnotations(annotations)
	namespace, name, _ := strings.Cut(own, "/")
	m.SetNamespace(namespace)
	m.SetName(name)
	return nil
}

// ownName is the annotation of a pod whose name is not that of its key, which some suites write.
const ownName = "storage.test/own-name"

// encode encodes an object as the content of an event: without resourceVersion, and below the name of its key.
func encode(obj runtime.Object, at place) ([]byte, error) {
	obj = obj.DeepCopyObject()
	if err := (storage.APIObjectVersioner{}).PrepareObjectForStorage(obj); err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if own := (place{m.GetNamespace(), m.GetName()}); own != at || own.name == "" {
		annotations := map[string]string{ownName: own.namespace + "/" + own.name}
		maps.Copy(annotations, m.GetAnnotations())
		m.SetAnnotations(annotations)
		m.SetNamespace(at.namespace)
		m.SetName(at.name)
	}
	text, err := runtime.Encode(codec, obj)
	return bytes.TrimSpace(text), err
}

// propose appends an event about the object at a place, which must be at a revision, and returns the event's.
func (a *adapter) propose(ctx context.Context, tip *commit.Tip, kind logpb.Type, r schema.GroupResource, at place, uid string, content []byte, revision uint64) (*commit.Tip, uint64, error) {
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type: kind, PreviousRevision: revision,
		Object: &logpb.Object{Group: r.Group, Resource: r.Resource, Namespace: at.namespace, Name: at.name, Uid: uid, Version: "v1"},
	}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, content)
	entry, err := eventlog.Encode(e)
	if err != nil {
		return nil, 0, err
	}
	return a.committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: commit.Checks{
		PolicyRevision: tip.PolicyRevision(), Object: &commit.Key{GroupResource: r, Namespace: at.namespace, Name: at.name}, Revision: revision,
	}})
}

// put writes an object and decodes the result.
func (a *adapter) put(ctx context.Context, tip *commit.Tip, at place, old *objects.Object, content []byte, out runtime.Object) error {
	kind, revision := logpb.Type_TYPE_CREATED, uint64(0)
	if old != nil {
		kind, revision = logpb.Type_TYPE_UPDATED, old.Revision
	}
	o, err := objects.Parse(pods, content, 0)
	if err != nil {
		return err
	}
	after, _, err := a.propose(ctx, tip, kind, pods, at, o.UID, content, revision)
	if err != nil {
		return err
	}
	return decode(after.Objects.Get(pods, at.namespace, at.name), out)
}

// Create implements storage.Interface. Stele has no TTL of single objects.
func (a *adapter) Create(ctx context.Context, k string, obj, out runtime.Object, _ uint64) error {
	k, at, err := key(k)
	if err != nil {
		return err
	}
	if version, err := a.ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	content, err := encode(obj, at)
	if err != nil {
		return err
	}
	err = a.put(ctx, a.committer.Tip(), at, nil, content, out)
	if stale := (*commit.Stale)(nil); errors.As(err, &stale) {
		return storage.NewKeyExistsError(k, 0)
	}
	return err
}

// current returns the newest state, and the object in it, nil if there is none.
func (a *adapter) current(ctx context.Context, at place) (*commit.Tip, *objects.Object, error) {
	tip, err := a.committer.Confirm(ctx)
	if err != nil {
		return nil, nil, err
	}
	return tip, tip.Objects.Get(pods, at.namespace, at.name), nil
}

// Delete implements storage.Interface. It needs no suggestion of the object, because the tip is in memory.
func (a *adapter) Delete(ctx context.Context, k string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	k, at, err := key(k)
	if err != nil {
		return err
	}
	for {
		tip, o, err := a.current(ctx, at)
		if err != nil {
			return err
		}
		if o == nil {
			return storage.NewKeyNotFoundError(k, 0)
		}
		if err := decode(o, out); err != nil {
			return err
		}
		if err := preconditions.Check(k, out); err != nil {
			return err
		}
		if err := validate(ctx, out); err != nil {
			return err
		}
		_, revision, err := a.propose(ctx, tip, logpb.Type_TYPE_DELETED, pods, at, o.UID, o.Payload(), o.Revision)
		if stale := (*commit.Stale)(nil); errors.As(err, &stale) {
			continue
		}
		if err != nil {
			return err
		}
		return decode(o.At(revision), out)
	}
}

// GuaranteedUpdate implements storage.Interface.
func (a *adapter) GuaranteedUpdate(ctx context.Context, k string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, try storage.UpdateFunc, _ runtime.Object) error {
	k, at, err := key(k)
	if err != nil {
		return err
	}
	for {
		tip, o, err := a.current(ctx, at)
		if err != nil {
			return err
		}
		is, revision := reflect.New(reflect.TypeOf(out).Elem()).Interface().(runtime.Object), uint64(0)
		if o != nil {
			revision = o.Revision
			err = decode(o, is)
		} else if !ignoreNotFound {
			return storage.NewKeyNotFoundError(k, 0)
		}
		if err != nil {
			return err
		}
		if err := preconditions.Check(k, is); err != nil {
			return err
		}
		wanted, _, err := try(is, storage.ResponseMeta{ResourceVersion: revision})
		if err != nil {
			return err
		}
		content, err := encode(wanted, at)
		if err != nil {
			return err
		}
		if o != nil && o.HasPayload(content) && !a.outdated.Load() {
			return decode(o, out)
		}
		err = a.put(ctx, tip, at, o, content, out)
		if stale := (*commit.Stale)(nil); errors.As(err, &stale) {
			continue
		}
		return err
	}
}

// atLeast returns the newest state, or an error if that is older than a resourceVersion.
func (a *adapter) atLeast(ctx context.Context, resourceVersion string) (*commit.Tip, error) {
	tip, err := a.committer.Confirm(ctx)
	if err != nil || resourceVersion == "" {
		return tip, err
	}
	least, err := a.ParseResourceVersion(resourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if least > tip.Revision() {
		return nil, storage.NewTooLargeResourceVersionError(least, tip.Revision(), 0)
	}
	return tip, nil
}

// Get implements storage.Interface.
func (a *adapter) Get(ctx context.Context, k string, opts storage.GetOptions, out runtime.Object) error {
	k, at, err := key(k)
	if err != nil {
		return err
	}
	tip, err := a.atLeast(ctx, opts.ResourceVersion)
	if err != nil {
		return err
	}
	if o := tip.Objects.Get(pods, at.namespace, at.name); o != nil {
		return decode(o, out)
	}
	if opts.IgnoreNotFound {
		return runtime.SetZeroValue(out)
	}
	return storage.NewKeyNotFoundError(k, 0)
}

// scope is what a list or a watch is of: all pods, those of a namespace, or one.
type scope struct {
	prefix string // of the keys
	sel    objects.Selection
	one    *place // nil: not one
	none   bool   // no object can be below the prefix
}

func newScope(k string, opts storage.ListOptions) (s scope, err error) {
	if s.prefix, err = storage.PrepareKey(root, k, opts.Recursive); err != nil {
		return s, err
	}
	at, ok := parse(s.prefix)
	if !opts.Recursive {
		s.one, s.none = &at, !ok
	} else if !ok || at.name != "" { // below a namespace and a name is nothing
		s.none = true
	}
	s.sel = objects.Select(at.namespace, opts.Predicate.Label, opts.Predicate.Field)
	if s.one != nil && s.sel.Name == "" {
		s.sel.Name = at.name
	}
	return s, nil
}

// has reports whether the scope has an object that its selection matches: a selection without a namespace is of all
// namespaces, and a key is of one object.
func (s *scope) has(o *objects.Object) bool {
	return !s.none && (s.one == nil || *s.one == place{o.Namespace, o.Name})
}

// list yields the objects of a state from a key on; "" for all.
func (s *scope) list(state *objects.State, from string) iter.Seq[*objects.Object] {
	return func(yield func(*objects.Object) bool) {
		after := place{}
		if from != "" {
			// The token of a page is the key of its last object and a zero byte. Any other token begins with an object.
			after, _ = parse(from)
			if o := state.Get(pods, after.namespace, after.name); o != nil && s.has(o) && s.sel.Matches(o) && !yield(o) {
				return
			}
		}
		for o := range state.List(pods, &s.sel, after.namespace, after.name) {
			if s.has(o) && !yield(o) {
				return
			}
		}
	}
}

const (
	tooOld         = "The resourceVersion for the provided list is too old."
	continueTooOld = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
)

// state returns the state that a list is of.
func (a *adapter) state(ctx context.Context, s *scope, opts storage.ListOptions) (state *objects.State, from string, err error) {
	revision, from, err := storage.ValidateListOptions(s.prefix, a, opts)
	if err != nil {
		return nil, "", err
	}
	if revision <= 0 {
		least := opts.ResourceVersion
		if from != "" {
			least = ""
		}
		tip, err := a.atLeast(ctx, least)
		if err != nil {
			return nil, "", err
		}
		return tip.Objects, from, nil
	}
	if _, err := a.atLeast(ctx, fmt.Sprint(revision)); err != nil {
		return nil, "", err
	}
	state, err = a.committer.Objects().At(pods, uint64(revision))
	if errors.Is(err, objects.ErrExpired) || uint64(revision) < a.compacted.Load() {
		if from == "" {
			return nil, "", apierrors.NewResourceExpired(tooOld)
		}
		expired := apierrors.NewResourceExpired(continueTooOld)
		if expired.ErrStatus.ListMeta.Continue, err = storage.EncodeContinue(from, s.prefix, -1); err != nil {
			return nil, "", err
		}
		return nil, "", expired
	}
	return state, from, err
}

// GetList implements storage.Interface.
func (a *adapter) GetList(ctx context.Context, k string, opts storage.ListOptions, list runtime.Object) error {
	s, err := newScope(k, opts)
	if err != nil {
		return err
	}
	state, from, err := a.state(ctx, &s, opts)
	if err != nil {
		return err
	}
	var items []runtime.Object
	var last *objects.Object
	full := func() bool { return opts.Predicate.Limit > 0 && int64(len(items)) == opts.Predicate.Limit }
	for o := range s.list(state, from) {
		if full() {
			break
		}
		pod := &example.Pod{}
		if err := decode(o, pod); err != nil {
			return err
		}
		items, last = append(items, pod), o
	}
	// As upstream, there is a token if objects follow, whether they are selected or not. Stele's API is more exact.
	next, remaining := "", (*int64)(nil)
	if full() {
		following := int64(state.CountAfter(pods, s.sel.Namespace, last.Namespace, last.Name))
		next, remaining, err = storage.PrepareContinueToken(keyOf(last), s.prefix, int64(state.Revision), opts.Predicate.Limit+following, following > 0, opts)
		if err != nil {
			return err
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return err
	}
	return a.UpdateList(list, state.Revision, next, remaining)
}

func keyOf(o *objects.Object) string {
	if o.Namespace == "" {
		return root + o.Name
	}
	return root + o.Namespace + "/" + o.Name
}

// Watch implements storage.Interface.
func (a *adapter) Watch(ctx context.Context, k string, opts storage.ListOptions) (watch.Interface, error) {
	s, err := newScope(k, opts)
	if err != nil {
		return nil, err
	}
	w := &watcher{scope: s, opts: opts, out: make(chan watch.Event, 100), stop: make(chan struct{})}
	from, err := a.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	initial := from == 0
	if opts.SendInitialEvents != nil {
		initial = *opts.SendInitialEvents
	}
	tip, err := a.atLeast(ctx, opts.ResourceVersion)
	if ctx.Err() != nil {
		close(w.out)
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	if from == 0 || initial {
		from = tip.Revision()
	}
	if initial {
		w.initial = tip.Objects
	}
	if w.source, err = a.committer.Objects().Watch(pods, s.sel, from); errors.Is(err, objects.ErrExpired) || from < a.compacted.Load() {
		status := apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.").ErrStatus
		w.out <- watch.Event{Type: watch.Error, Object: &status}
		close(w.out)
		return w, nil
	} else if err != nil {
		return nil, err
	}
	go w.run(ctx, from)
	return w, nil
}

// watcher presents a watch of the projection.
type watcher struct {
	scope
	opts    storage.ListOptions
	source  *objects.Watcher
	initial *objects.State // sent first; nil for nothing
	out     chan watch.Event
	stop    chan struct{}
	stopped atomic.Bool
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	if !w.stopped.Swap(true) {
		close(w.stop)
	}
}

var errStopped = errors.New("the watch was stopped")

func (w *watcher) send(ctx context.Context, kind watch.EventType, object runtime.Object) error {
	select {
	case w.out <- watch.Event{Type: kind, Object: object}:
		return nil
	case <-w.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *watcher) bookmark(ctx context.Context, revision uint64, endOfInitial bool) error {
	pod := &example.Pod{}
	if err := (storage.APIObjectVersioner{}).UpdateObject(pod, revision); err != nil {
		return err
	}
	if endOfInitial {
		if err := storage.AnnotateInitialEventsEndBookmark(pod); err != nil {
			return err
		}
	}
	return w.send(ctx, watch.Bookmark, pod)
}

func (w *watcher) run(ctx context.Context, from uint64) {
	defer close(w.out)
	defer w.source.Stop()
	if err := w.stream(ctx, from); err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
		status := apierrors.NewInternalError(err).ErrStatus
		if errors.Is(err, objects.ErrExpired) {
			status = apierrors.NewResourceExpired(err.Error()).ErrStatus
		}
		w.out <- watch.Event{Type: watch.Error, Object: &status}
	}
}

var kinds = map[objects.EventType]watch.EventType{objects.Added: watch.Added, objects.Modified: watch.Modified, objects.Deleted: watch.Deleted}

func (w *watcher) stream(ctx context.Context, from uint64) error {
	event := func(kind watch.EventType, o *objects.Object) error {
		pod := &example.Pod{}
		if err := decode(o, pod); err != nil {
			return err
		}
		return w.send(ctx, kind, pod)
	}
	if w.initial != nil {
		for o := range w.list(w.initial, "") {
			if err := event(watch.Added, o); err != nil {
				return err
			}
		}
		if w.opts.SendInitialEvents != nil && w.opts.Predicate.AllowWatchBookmarks {
			if err := w.bookmark(ctx, from, true); err != nil {
				return err
			}
		}
	}
	at := from
	for {
		events, upTo, more, err := w.source.Take()
		if err != nil {
			return err
		}
		for _, e := range events {
			if !w.has(e.Object) {
				continue
			}
			if err := event(kinds[e.Type], e.Object); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		if upTo > at && (w.opts.ProgressNotify || w.opts.Predicate.AllowWatchBookmarks && len(events) == 0) {
			if err := w.bookmark(ctx, upTo, false); err != nil {
				return err
			}
		}
		at = upTo
		select {
		case <-w.source.Ready():
		case <-w.stop:
			return errStopped
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && w.opts.Predicate.AllowWatchBookmarks {
				return w.bookmark(context.WithoutCancel(ctx), at, false) // as stele's API
			}
			return ctx.Err()
		}
	}
}

// Stats implements storage.Interface. Sizes are not estimated.
func (a *adapter) Stats(ctx context.Context) (storage.Stats, error) {
	tip, err := a.committer.Confirm(ctx)
	if err != nil {
		return storage.Stats{}, err
	}
	return storage.Stats{ObjectCount: int64(tip.Objects.Len(pods))}, nil
}

// ReadinessCheck implements storage.Interface.
func (a *adapter) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. A watch of the projection always has its progress.
func (a *adapter) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (a *adapter) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	tip, err := a.committer.Confirm(ctx)
	if err != nil {
		return 0, err
	}
	return tip.Revision(), nil
}

// EnableResourceSizeEstimation implements storage.Interface.
func (a *adapter) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (a *adapter) CompactRevision() int64 { return int64(a.compacted.Load()) }

// compact refuses revisions before one from now on. Like etcd's compaction it takes one revision.
func (a *adapter) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	revision, err := a.ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	a.compacted.Store(revision)
	a.increase(ctx, t)
}

// increase writes another object, and returns the revision.
func (a *adapter) increase(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	at, kind := place{"default", "counter"}, logpb.Type_TYPE_UPDATED
	tip, before := a.committer.Tip(), uint64(0)
	if o := tip.Objects.Get(others, at.namespace, at.name); o != nil {
		before = o.Revision
	} else {
		kind = logpb.Type_TYPE_CREATED
	}
	content := []byte(`{"metadata":{"name":"counter","namespace":"default"}}`)
	_, revision, err := a.propose(ctx, tip, kind, others, at, "", content, before)
	if err != nil {
		t.Fatal(err)
	}
	return int64(revision)
}
