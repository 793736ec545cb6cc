package past_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"stele.dev/stele/core/run/plane/planetest"
)

// askedMoments is of how many moments each replica is asked.
const askedMoments = 12

// askAll asks for random moments of four replicas: the one that lived through the end, one
// that has all in its memory but was not there, one that remembers nothing, and one that begins
// with a checkpoint.
func (s *story) askAll() {
	time.Sleep(time.Hour) // what has an age has another one
	now := s.asks()
	for _, of := range []struct {
		name  string
		start func() *planetest.Replica
	}{
		{"a replica that was there", func() *planetest.Replica { return s.Replica }},
		{"one that remembers all", func() *planetest.Replica { return s.another(0) }},
		{"one that remembers nothing", func() *planetest.Replica { return s.another(1) }},
		{"one that begins with a checkpoint", func() *planetest.Replica {
			s.Replica.Close()
			s.begin(1)
			return s.Replica
		}},
	} {
		r := of.start()
		for range askedMoments {
			s.askFor(of.name, r, s.rng.IntN(len(s.moments)), now)
		}
		s.askForLost(of.name, r)
		s.watchFor(of.name, r, s.moments[s.rng.IntN(len(s.moments))])
	}
	s.checkTiers()
	s.askByClients(s.moments[s.rng.IntN(len(s.moments))], s.moments[s.rng.IntN(len(s.moments))])
}

// checkTiers fails the test if the log is not in several places, and the last start did not begin with a checkpoint.
func (s *story) checkTiers() {
	s.t.Helper()
	segments, batches, tip := s.Plane.Archive.Segments(), s.store.Batches(), s.Committer.Tip().Revision()
	if len(segments) < 2 || len(batches) < 3 || batches[1].First <= segments[0].Last || s.Committer.Restored().Revision == 0 {
		s.t.Errorf("up to revision %d there are %d segments and %d batches in the store, and the last start began with revision %d: want some segments, some batches after them, and a checkpoint",
			tip, len(segments), len(batches), s.Committer.Restored().Revision)
	}
}

// askFor asks one replica all that was asked at a moment.
func (s *story) askFor(name string, r *planetest.Replica, i int, now []planetest.Asking) {
	m := s.moments[i]
	byRevision := fmt.Sprint(m.revision)
	byTime := m.instant(s.rng.Int64N(int64(s.until(i).Sub(m.time))))
	last := i+1 == len(s.moments) || s.moments[i+1].time.After(m.time) // of those that have its time
	for _, q := range sorted(m.objects) {
		then := m.objects[q]
		s.same(name, m, q.At(byRevision), then, r)
		if last && s.rng.IntN(4) == 0 {
			s.same(name, m, q.At(byTime), then, r)
		}
		list := q.Accept == "" && then.Code == 200 && !isObject(q)
		if list && continues(q) && s.rng.IntN(4) == 0 {
			s.pages(name, m, q.At(byRevision), q.At(byRevision), then, r)
		}
		// By the parameters of a read, it is asked under today's policy.
		if then.Code == 400 || !slices.Contains(now, q) {
			continue
		}
		if q.Accept == tableOnly {
			s.sameTable(name, m, exactly(q, m.revision), then, r)
		} else if !strings.Contains(q.Path, "spec.") { // today other fields may be selected by
			s.same(name, m, exactly(q, m.revision), then, r)
			if list && continues(q) && s.rng.IntN(4) == 0 {
				s.pages(name, m, exactly(q, m.revision), q, then, r)
			}
		}
	}
	for _, q := range sorted(m.documents) {
		s.same(name, m, q.At(byRevision), m.documents[q], r)
	}
}

// sorted is in an order that is the same each time.
func sorted(all map[planetest.Asking]planetest.Said) []planetest.Asking {
	return slices.SortedFunc(maps.Keys(all), func(a, b planetest.Asking) int { return strings.Compare(a.Path+" "+a.Accept, b.Path+" "+b.Accept) })
}

// until is when a moment is not the newest any more.
func (s *story) until(i int) time.Time {
	for _, m := range s.moments[i+1:] {
		if m.time.After(s.moments[i].time) {
			return m.time
		}
	}
	return time.Now()
}

// instant is a time so long after a moment.
func (m *kept) instant(after int64) string {
	return m.time.Add(time.Duration(after)).UTC().Format(time.RFC3339Nano)
}

// same fails the test if the answer to a question is not what was said then.
func (s *story) same(name string, m *kept, q planetest.Asking, then planetest.Said, r *planetest.Replica) {
	s.t.Helper()
	now := r.Ask(q)
	if now.Code == then.Code && (then.Code == 404 || now.Body == then.Body) { // a 404 of today may say more
		return
	}
	diff := cmp.Diff(jsonOf(then.Body), jsonOf(now.Body))
	if diff == "" {
		diff = fmt.Sprintf("other bytes:\n%s%s", then.Body, now.Body)
	}
	s.wrong("%s, asked for %s as %q, the newest after step %d: %d, was %d (-then +now):\n%s", name, q.Path, q.Accept, m.step, now.Code, then.Code, diff)
}

// wrong fails the test, and ends it when that has been said often enough.
func (s *story) wrong(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf(format, args...)
	if s.errors++; s.errors == 10 {
		s.t.FailNow()
	}
}

// sameTable compares tables but for what today's policy says: the columns.
func (s *story) sameTable(name string, m *kept, q planetest.Asking, then planetest.Said, r *planetest.Replica) {
	s.t.Helper()
	now := r.Ask(q)
	var was, is metav1.Table
	if now.Code != then.Code || then.Code == 200 && (json.Unmarshal([]byte(then.Body), &was) != nil || json.Unmarshal([]byte(now.Body), &is) != nil) {
		s.same(name, m, q, then, r)
		return
	}
	if !cmp.Equal(was.ColumnDefinitions, is.ColumnDefinitions) {
		for _, t := range []*metav1.Table{&was, &is} {
			t.ColumnDefinitions = nil
			for i := range t.Rows {
				t.Rows[i].Cells = nil
			}
		}
	}
	if diff := cmp.Diff(was, is); diff != "" {
		s.wrong("%s, asked for %s as a table, the newest after step %d (-then +now):\n%s", name, q.Path, m.step, diff)
	}
}

// list is a list with its items as they stand there.
type list struct {
	Metadata metav1.ListMeta   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// pages asks for a list in pages, which together are what was said then.
func (s *story) pages(name string, m *kept, first, more planetest.Asking, then planetest.Said, r *planetest.Replica) {
	s.t.Helper()
	limit, next := 1+s.rng.IntN(3), ""
	var was, all list
	if err := json.Unmarshal([]byte(then.Body), &was); err != nil {
		s.t.Fatal(err)
	}
	for q := first; q != (planetest.Asking{}); {
		path := with(q, fmt.Sprintf("limit=%d&continue=%s", limit, url.QueryEscape(next))).Path
		a, page := r.Ask(planetest.Asking{Path: path}), list{}
		if err := json.Unmarshal([]byte(a.Body), &page); a.Code != 200 || err != nil {
			s.wrong("%s: %s: %v", name, path, a)
			return
		}
		all.Items = append(all.Items, page.Items...)
		left := int64(len(was.Items) - len(all.Items))
		if remaining := page.Metadata.RemainingItemCount; page.Metadata.ResourceVersion != fmt.Sprint(m.revision) || remaining != nil && *remaining != left {
			s.wrong("%s: %s: the page is of revision %s and %v remain, want %d and %d", name, path, page.Metadata.ResourceVersion, remaining, m.revision, left)
		}
		if q, next = more, page.Metadata.Continue; next == "" {
			q = planetest.Asking{}
		}
	}
	if diff := cmp.Diff(fmt.Sprintf("%s", was.Items), fmt.Sprintf("%s", all.Items)); diff != "" {
		s.wrong("%s: the pages of %s, the newest after step %d (-then +now):\n%s", name, first.Path, m.step, diff)
	}
}

// askForLost asks for revisions that were lost.
func (s *story) askForLost(name string, r *planetest.Replica) {
	for _, lost := range s.lost {
		q := planetest.Asking{Path: "/apis/example.com/v1/namespaces/default/widgets"}
		for _, q := range []planetest.Asking{exactly(q, lost), q.At(fmt.Sprint(lost)), planetest.Asking{Path: "/apis"}.At(fmt.Sprint(lost))} {
			if a := r.Ask(q); a.Code != 410 {
				s.wrong("%s, asked for %s, which was lost: %v", name, q.Path, a)
			}
		}
	}
}

// watchFor watches a moment: the state, and then nothing until the time is up.
func (s *story) watchFor(name string, r *planetest.Replica, m *kept) {
	q := planetest.Asking{Path: "/api/v1/namespaces"}
	var was list
	if err := json.Unmarshal([]byte(m.objects[q].Body), &was); err != nil {
		s.t.Fatal(err)
	}
	began := time.Now()
	a := r.Do("GET", q.At(fmt.Sprint(m.revision)).Path+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=90", "")
	if took := time.Since(began); a.Code != 200 || took != 90*time.Second {
		s.wrong("%s, watching %d: it took %v: %s", name, m.revision, took, a)
		return
	}
	var got []any
	var state int
	for line := range strings.Lines(string(a.Body)) {
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		switch version := e.Object["metadata"].(map[string]any)["resourceVersion"]; e.Type {
		case "ADDED":
			delete(e.Object, "apiVersion") // items of lists of built-in kinds do without
			delete(e.Object, "kind")
			got, state = append(got, e.Object), state+1
		case "BOOKMARK":
			if version != fmt.Sprint(m.revision) || state != len(was.Items) {
				s.wrong("%s, watching %d: a bookmark of %v behind %d objects", name, m.revision, version, state)
			}
		default:
			s.wrong("%s, watching %d: %s", name, m.revision, line)
		}
	}
	var want []any
	for _, item := range was.Items {
		want = append(want, jsonOf(string(item)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.wrong("%s, watching %d (-then +now):\n%s", name, m.revision, diff)
	}
}

// askByClients asks for moments with client-go, over a socket, of a replica that remembers nothing.
func (s *story) askByClients(moments ...*kept) {
	r := s.another(1)
	server := httptest.NewServer(r)
	defer server.Close()
	for _, m := range moments {
		host := fmt.Sprintf("%s/at/%d", server.URL, m.revision)
		client, config := planetest.DynamicClient(s.t, host, nil), &rest.Config{Host: host, BearerToken: "admin-token", QPS: -1, WarningHandler: rest.NoWarnings{}}
		d, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			s.t.Fatal(err)
		}
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, served := range lists {
			version, err := schema.ParseGroupVersion(served.GroupVersion)
			if err != nil {
				s.t.Fatal(err)
			}
			for _, resource := range served.APIResources {
				path := "/apis/" + served.GroupVersion + "/" + resource.Name
				if version.Group == "" {
					path = "/api/v1/" + resource.Name
				}
				then, asked := m.objects[planetest.Asking{Path: path}]
				if !asked {
					continue
				}
				var was unstructured.UnstructuredList
				if err := was.UnmarshalJSON([]byte(then.Body)); err != nil {
					s.t.Fatal(err)
				}
				gvr := version.WithResource(resource.Name)
				s.sameList(client.Resource(gvr), m, path, was)
				for _, o := range was.Items {
					got, err := client.Resource(gvr).Namespace(o.GetNamespace()).Get(s.t.Context(), o.GetName(), metav1.GetOptions{})
					if diff := cmp.Diff(&o, got); err != nil || diff != "" {
						s.wrong("client-go at %d: %s %s: %v (-then +now):\n%s", m.revision, path, o.GetName(), err, diff)
					}
					if err := client.Resource(gvr).Namespace(o.GetNamespace()).Delete(s.t.Context(), o.GetName(), metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
						s.wrong("client-go at %d: a delete of %s: %v", m.revision, path, err)
					}
				}
			}
		}
		// Who asks at today's address, by the parameters of a list.
		if then, asked := m.objects[planetest.Asking{Path: "/apis/example.com/v1/widgets"}]; asked {
			var was unstructured.UnstructuredList
			if err := was.UnmarshalJSON([]byte(then.Body)); err != nil {
				s.t.Fatal(err)
			}
			s.sameList(planetest.DynamicClient(s.t, server.URL, nil).Resource(planetest.WidgetsGVR), m, "exactly", was)
		}
	}
}

// sameList lists in pages what was listed then.
func (s *story) sameList(client lister, m *kept, path string, was unstructured.UnstructuredList) {
	s.t.Helper()
	o := metav1.ListOptions{Limit: 2}
	if path == "exactly" {
		o.ResourceVersion, o.ResourceVersionMatch = fmt.Sprint(m.revision), metav1.ResourceVersionMatchExact
	}
	got := unstructured.UnstructuredList{Object: was.Object}
	err := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		if o.Continue != "" {
			o.ResourceVersion, o.ResourceVersionMatch = "", "" // which the pager leaves to its caller
		}
		return client.List(s.t.Context(), o)
	})).
		EachListItem(s.t.Context(), o, func(item runtime.Object) error {
			got.Items = append(got.Items, *item.(*unstructured.Unstructured))
			return nil
		})
	if diff := cmp.Diff(was.Items, got.Items, cmpopts.EquateEmpty()); err != nil || diff != "" {
		s.wrong("client-go at %d: %s, the newest after step %d: %v (-then +now):\n%s", m.revision, path, m.step, err, diff)
	}
}

type lister interface {
	List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error)
}
