package core

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

func (r *Request) isChanges() bool {
	return r.info.APIGroup == changes.Group && r.info.APIVersion == changes.Version && r.info.Resource == changes.Plural
}

// allowedChanges tells whether there is something at the request's path, and whether
// it takes the method: changes are only read.
func (r *Request) allowedChanges() error {
	r.key.Group, r.key.Resource, r.key.Name = changes.Group, changes.Plural, r.info.Name
	if r.info.Subresource != "" {
		return status.NotServed(r.info.Verb, r.resource())
	}
	switch r.info.Verb {
	case "get", "list", "watch":
		return nil
	}
	return apierrors.NewMethodNotSupported(r.resource(), r.info.Verb)
}

// answerChanges reads the log for a client. There is no state behind it but the log.
func (p *Pipeline) answerChanges(ctx context.Context, r *Request) error {
	o := &internalversion.ListOptions{}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.http.URL.Query(), metav1.SchemeGroupVersion, o); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	// Nothing is there to begin a watch with: clients that ask for it hear that, and list.
	if errs := internalvalidation.ValidateListOptions(o, false); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	sel := &changes.Selection{Namespace: r.info.Namespace, Fields: o.FieldSelector}
	if r.info.Name != "" { // what was authorized is this one
		name := fields.OneTermEqualSelector("metadata.name", r.info.Name)
		if sel.Fields == nil {
			sel.Fields = name
		} else {
			sel.Fields = fields.AndSelectors(sel.Fields, name)
		}
	}
	if err := sel.Check(); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		return apierrors.NewBadRequest("changes have no labels to select by")
	}
	switch r.info.Verb {
	case "get":
		return p.getChange(ctx, r, sel)
	case "list":
		return p.listChanges(ctx, r, sel, o)
	default:
		return p.watchChanges(ctx, r, sel, o)
	}
}

func (p *Pipeline) getChange(ctx context.Context, r *Request, sel *changes.Selection) error {
	if err := p.see(ctx, r, ""); err != nil {
		return err
	}
	revision, err := strconv.ParseUint(r.info.Name, 10, 64)
	if err == nil && revision <= r.tip.Revision() {
		c, err := changes.At(ctx, p.log, revision)
		if err != nil {
			return err
		}
		if c != nil && sel.Matches(c) {
			return p.answerChange(r, c)
		}
	}
	return apierrors.NewNotFound(r.resource(), r.info.Name)
}

func (p *Pipeline) answerChange(r *Request, c *changes.Change) error {
	f, err := r.format()
	if err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if text, err = changesForm.as(r, f, metav1.ListMeta{ResourceVersion: c.ResourceVersion}, [][]byte{text}, false); err != nil {
		return err
	}
	return p.writeBody(r, f, http.StatusOK, text)
}

// changesAtOnce is how many changes a list holds that names no limit.
const changesAtOnce = 500

// listChanges answers with the newest changes first. Its continue token is the
// revision to go on from.
func (p *Pipeline) listChanges(ctx context.Context, r *Request, sel *changes.Selection, o *internalversion.ListOptions) error {
	if err := p.see(ctx, r, ""); err != nil {
		return err
	}
	from, limit := r.tip.Revision(), changesAtOnce
	if o.Limit > 0 {
		limit = min(int(o.Limit), 10*changesAtOnce)
	}
	if o.Continue != "" {
		at, err := strconv.ParseUint(o.Continue, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest("invalid continue token: continue key is not valid")
		}
		from = min(from, at)
	}
	found, next, err := changes.Back(ctx, p.log, from, limit, sel)
	if err != nil {
		return err
	}
	f, err := r.format()
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(r.tip.Revision(), 10)}
	if next > 0 {
		meta.Continue = strconv.FormatUint(next, 10)
	}
	texts := make([][]byte, len(found))
	for i, c := range found {
		if texts[i], err = json.Marshal(c); err != nil {
			return err
		}
	}
	body, err := changesForm.as(r, f, meta, texts, true)
	if err != nil {
		return err
	}
	return p.writeBody(r, f, http.StatusOK, body)
}

// A form is how resources are shown that no kind of the policy describes.
type form struct {
	listKind, version string
	printer           func() *table.Printer
}

func newForm(listKind, version string, columns func() []schemas.Column) *form {
	return &form{listKind, version, sync.OnceValue(func() *table.Printer {
		return table.New(&policy.Version{Version: &schemas.Version{Columns: columns()}})
	})}
}

var changesForm = newForm(changes.ListKind, changes.Group+"/"+changes.Version, changes.Columns)

// as encodes objects, a list of them or one, in the form that is wanted.
func (x *form) as(r *Request, f negotiate.Format, meta metav1.ListMeta, texts [][]byte, list bool) ([]byte, error) {
	if f.As == negotiate.Table {
		o, err := tableOptions(r, f)
		if err != nil {
			return nil, err
		}
		return x.printer().Table(o, meta, texts)
	}
	kind, version := x.listKind, x.version
	if f.As == negotiate.Metadata {
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/"+f.AsVersion
		for i, t := range texts {
			texts[i] = table.Metadata(t, f.AsVersion)
		}
	}
	if !list {
		return texts[0], nil
	}
	items := make([]json.RawMessage, len(texts))
	for i, t := range texts {
		items[i] = t
	}
	return json.Marshal(struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}{kind, version, meta, items})
}

// watchChanges follows the log from behind a revision, or from its tip.
func (p *Pipeline) watchChanges(ctx context.Context, r *Request, sel *changes.Selection, o *internalversion.ListOptions) error {
	s, ctx, err := p.newStream(ctx, r)
	if err != nil {
		return err
	}
	version := o.ResourceVersion
	if version == "0" {
		version = ""
	}
	if err := p.see(ctx, r, version); err != nil {
		return err
	}
	at, pending := r.tip.Head, []*changes.Change(nil)
	if version != "" {
		revision, err := queryRevision(version)
		if err != nil {
			return err
		}
		if pending, at, err = changes.After(ctx, p.log, revision); err != nil {
			return err
		}
	}
	timeout := minWatch
	if asked, ok := watchTimeout(o); ok {
		timeout = asked
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.draining:
			cancel()
		case <-stop:
		}
	}()
	s.begin()
	for {
		for _, c := range pending {
			if !sel.Matches(c) {
				continue
			}
			text, err := json.Marshal(c)
			if err == nil {
				text, err = changesForm.as(r, s.format, metav1.ListMeta{ResourceVersion: c.ResourceVersion}, [][]byte{text}, false)
			}
			if err == nil {
				err = s.frame("ADDED", text)
			}
			if err != nil {
				return s.fail(err, c.Revision)
			}
		}
		if err := s.flush(); err != nil {
			return nil
		}
		batches, err := p.log.Next(ctx, at)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, context.Canceled) {
				return nil
			}
			return s.fail(err, at.Revision)
		}
		pending = pending[:0]
		for _, b := range batches {
			for _, e := range b.Events {
				pending = append(pending, changes.From(e)...)
			}
			at = b.Head()
		}
		// Who hears of a change finds it in the objects, too, and may still hear of it.
		if p.committer.Tip().Revision() < at.Revision {
			if _, err := p.committer.Settle(ctx); err != nil {
				return nil
			}
		}
		if _, err := p.stillAllowed(ctx, r); err != nil {
			return s.fail(err, at.Revision)
		}
	}
}
