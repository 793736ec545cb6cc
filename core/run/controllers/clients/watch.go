package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"stele.dev/stele/core/auth/loopback"
)

// watching is a watch of this server, whose events are not encoded and decoded on the way. It implements [watch.Interface].
type watching struct {
	ctx    context.Context
	cancel context.CancelFunc
	events chan watch.Event
}

// queued is how many events wait for a follower before the watch waits.
const queued = 64

// watch watches the metadata of objects of a resource that controllers look at: no labels, annotations and managedFields.
func (s *Set) watch(ctx context.Context, r schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{ctx: ctx, cancel: cancel, events: make(chan watch.Event, queued)}
	o.Watch = true
	path := []string{"/apis", r.Group, r.Version, r.Resource}
	if r.Group == "" {
		path = []string{"/api", r.Version, r.Resource}
	}
	body, err := s.watches.Get().AbsPath(path...).SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Stream(loopback.WithEvents(ctx, w.receive))
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, body) // until the last event has been received
		cancel()
		close(w.events)
	}()
	return w, nil
}

// ResultChan implements [watch.Interface].
func (w *watching) ResultChan() <-chan watch.Event { return w.events }

// Stop implements [watch.Interface].
func (w *watching) Stop() { w.cancel() }

func (w *watching) receive(kind string, object []byte) error {
	e, err := decodeEvent(watch.EventType(kind), object)
	if err != nil { // the follower's reflector logs it, and lists again
		e = watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}
	}
	select {
	case w.events <- e:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

func decodeEvent(kind watch.EventType, object []byte) (watch.Event, error) {
	if kind == watch.Error {
		st := &metav1.Status{}
		return watch.Event{Type: kind, Object: st}, json.Unmarshal(object, st)
	}
	o := &metav1.PartialObjectMetadata{}
	if kind == watch.Bookmark { // its annotation may end the initial events
		return watch.Event{Type: kind, Object: o}, json.Unmarshal(object, o)
	}
	var err error
	gjson.GetBytes(object, "metadata").ForEach(func(key, value gjson.Result) bool {
		err = decodeField(&o.ObjectMeta, key.Str, value)
		return err == nil
	})
	return watch.Event{Type: kind, Object: o}, err
}

// decodeField sets a field of metadata. It clones strings, which are parts of all the metadata's text.
func decodeField(o *metav1.ObjectMeta, name string, value gjson.Result) error {
	switch name {
	case "name":
		o.Name = strings.Clone(value.Str)
	case "namespace":
		o.Namespace = strings.Clone(value.Str)
	case "uid":
		o.UID = types.UID(strings.Clone(value.Str))
	case "resourceVersion":
		o.ResourceVersion = strings.Clone(value.Str)
	case "deletionTimestamp":
		at, err := time.Parse(time.RFC3339, value.Str)
		if err != nil {
			return fmt.Errorf("deletionTimestamp: %w", err)
		}
		o.DeletionTimestamp = &metav1.Time{Time: at}
	case "finalizers":
		return json.Unmarshal([]byte(value.Raw), &o.Finalizers)
	case "ownerReferences":
		return json.Unmarshal([]byte(value.Raw), &o.OwnerReferences)
	}
	return nil
}
