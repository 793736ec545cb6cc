package decisionsapi

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/history"
)

// writesBack yields the writes up to a revision that may match the query.
func (v *service) writesBack(ctx context.Context, q *query, from uint64) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		if !q.writes() || from == 0 {
			return
		}
		var all []iter.Seq2[*history.Change, error]
		for _, f := range q.filters() {
			all = append(all, v.History.Before(ctx, f, from))
		}
		for c, err := range newestFirst(all) {
			if err != nil {
				yield(nil, err)
				return
			}
			if c.Meta.GetRequest() == nil {
				continue // no request caused it
			}
			if !yield(ofWrite(c), nil) {
				return
			}
		}
	}
}

// filter returns a filter for the history that includes all writes of the query, and few others.
func (q *query) filter() history.Filter {
	f := history.Filter{Namespace: q.namespace}
	if namespace, ok := q.exactly(fieldNamespace); ok && f.Namespace == "" {
		f.Namespace = namespace
	}
	group, ok := q.exactly("object.group")
	if resource, named := q.exactly("object.resource"); ok && named {
		f.Resource = schema.GroupResource{Group: group, Resource: resource}
		f.Name, _ = q.exactly("object.name")
	}
	return f
}

// filters returns filters for the history that together include all writes of the query, each once, and few others. Writes of a
// namespace are in it.
func (q *query) filters() []history.Filter {
	f := q.filter()
	switch {
	case f.Namespace == "" || f.Resource != (schema.GroupResource{}) && f.Resource != commit.Namespaces:
		return []history.Filter{f}
	case f.Resource == (schema.GroupResource{}):
		return []history.Filter{f, {Resource: commit.Namespaces, Name: f.Namespace}}
	case f.Name != "" && f.Name != f.Namespace:
		return nil
	}
	return []history.Filter{{Resource: commit.Namespaces, Name: f.Namespace}}
}

// newestFirst merges changes that come with the newest first.
func newestFirst(all []iter.Seq2[*history.Change, error]) iter.Seq2[*history.Change, error] {
	if len(all) == 1 {
		return all[0]
	}
	return func(yield func(*history.Change, error) bool) {
		type source struct {
			next   func() (*history.Change, error, bool)
			change *history.Change
		}
		var left []*source
		advance := func(s *source) (ok bool, err error) {
			s.change, err, ok = s.next()
			return ok, err
		}
		for _, changes := range all {
			next, stop := iter.Pull2(changes)
			defer stop()
			s := &source{next: next}
			if ok, err := advance(s); err != nil {
				yield(nil, err)
				return
			} else if ok {
				left = append(left, s)
			}
		}
		for len(left) > 0 {
			newest := slices.MaxFunc(left, func(a, b *source) int { return cmp.Compare(a.change.Revision, b.change.Revision) })
			if !yield(newest.change, nil) {
				return
			}
			if ok, err := advance(newest); err != nil {
				yield(nil, err)
				return
			} else if !ok {
				left = slices.DeleteFunc(left, func(s *source) bool { return s == newest })
			}
		}
	}
}
