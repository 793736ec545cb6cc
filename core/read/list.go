package read

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// ListOptions reads and validates the query of a list or watch, and returns it with the selection of objects.
func (rd *Reader) ListOptions(c *call.Call) (*internalversion.ListOptions, objects.Selection, error) {
	o := &internalversion.ListOptions{}
	if err := call.DecodeQuery(c, o); err != nil {
		return nil, objects.Selection{}, err
	}
	internalversion.SetListOptionsDefaults(o, true)
	if errs := internalvalidation.ValidateListOptions(o, true); len(errs) > 0 {
		return nil, objects.Selection{}, status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if err := checkFields(c, o.FieldSelector); err != nil {
		return nil, objects.Selection{}, err
	}
	if name := c.Info.Name; name != "" { // from the path of a watch, or from the selector
		if o.FieldSelector == nil || o.FieldSelector.Empty() {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name)
		} else if selected, ok := o.FieldSelector.RequiresExactMatch("metadata.name"); !ok || selected != name {
			return nil, objects.Selection{}, status.BadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	selector, err := storedFields(c, o.FieldSelector)
	if err != nil {
		return nil, objects.Selection{}, err
	}
	return o, objects.Select(c.Key.Namespace, o.LabelSelector, selector), nil
}

// storedFields returns the selector with the field paths of stored objects.
func storedFields(c *call.Call, selector fields.Selector) (fields.Selector, error) {
	face := c.Kind.Kind.Face
	if selector == nil {
		return nil, nil
	}
	if face == nil && c.Kind.Kind.Converts() {
		return selector.Transform(func(field, value string) (string, string, error) { return c.Kind.StoredField(field), value, nil })
	}
	if face == nil {
		return selector, nil
	}
	return selector.Transform(func(field, value string) (string, string, error) { return face.StoredPath(field), value, nil })
}

// checkFields returns an error if the selector has a field that cannot be selected by.
func checkFields(c *call.Call, selector fields.Selector) error {
	if selector == nil {
		return nil
	}
	plain := c.Kind.Kind.Builtin && len(c.Kind.SelectableFields) == 0
	for _, q := range selector.Requirements() {
		switch {
		case plain: // upstream has another message for these
			if _, _, err := runtime.DefaultMetaV1FieldSelectorConversion(q.Field, q.Value); err != nil {
				return status.BadRequest(err.Error())
			}
		case q.Field == "metadata.name":
		case q.Field == "metadata.namespace" && c.Kind.Kind.Namespaced:
		case selectable(c, q.Field):
		default:
			return status.BadRequest("field label not supported: " + q.Field)
		}
	}
	return nil
}

func selectable(c *call.Call, field string) bool {
	return slices.ContainsFunc(c.Kind.SelectableFields, func(f string) bool { return strings.TrimPrefix(f, ".") == field })
}

// Page is a part of a list: its state, its first object, and its limit.
type Page struct {
	state          *objects.State // nil until Found has read it, for a past revision
	revision       uint64         // the resourceVersion of the answer
	afterNamespace string
	afterName      string
	limit          int
	OfPast         bool // the list is of a fixed revision, and never changes
}

// List answers with the objects at one revision.
func (rd *Reader) List(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	o, sel, err := rd.ListOptions(c)
	if err != nil {
		return err
	}
	pg, err := rd.PageOf(ctx, c, o)
	if err != nil {
		return err
	}
	if pg.OfPast {
		if fresh, err := rd.Fix(ctx, c, pg.revision); fresh || err != nil {
			return err
		}
	}
	found, err := rd.FindPage(ctx, c, f, &pg, &sel)
	if err != nil {
		return err
	}
	if len(found.Objects) == 0 && c.Past.Tip == nil {
		if err := rd.warnNamespace(ctx, c); err != nil {
			return err
		}
	}
	return rd.AnswerFound(c, found)
}

// Found is the objects of a page, the metadata of the list, and the format of the answer.
type Found struct {
	Meta    metav1.ListMeta
	Objects []*objects.Object
	format  negotiate.Format
	room    *room
}

// FindPage returns the objects of a page. Before that it takes a share of memory for them and for the answer, if the page may be
// large, until the request ends.
func (rd *Reader) FindPage(ctx context.Context, c *call.Call, f negotiate.Format, pg *Page, sel *objects.Selection) (*Found, error) {
	if pg.OfPast {
		var err error
		if pg.state, err = rd.stateAt(ctx, c, pg.revision); err != nil {
			return nil, err
		}
		as := sel.As(commit.KindOf(c.Kind.Kind.Stored()))
		sel = &as
	}
	room, err := rd.roomFor(ctx, c, f, pg, sel)
	if err != nil {
		return nil, err
	}
	expected := 1024
	if sel.Everything() && sel.Namespace == "" {
		expected = pg.state.Len(c.Resource())
	}
	found := make([]*objects.Object, 0, min(pg.limit, expected))
	more := false
	for x := range pg.state.List(c.Resource(), sel, pg.afterNamespace, pg.afterName) {
		if len(found) == pg.limit {
			more = true
			break
		}
		found = append(found, x)
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(pg.revision, 10)}
	if more {
		last := found[len(found)-1]
		if meta.Continue, err = storage.EncodeContinue(KeyPrefix+key(c, last), KeyPrefix, int64(pg.revision)); err != nil {
			return nil, err
		}
		if sel.Everything() {
			remaining := int64(pg.state.CountAfter(c.Resource(), sel.Namespace, last.Namespace, last.Name))
			meta.RemainingItemCount = &remaining
		}
		if ofView(c) {
			rd.Views.Pin(pg.state)
		} else {
			rd.Committer.Objects().Pin(pg.state)
		}
	}
	return &Found{Meta: meta, Objects: found, format: f, room: room}, nil
}

// KeyPrefix is the prefix of the key in a continue token.
const KeyPrefix = "/"

// key returns the key of a continue token: the first one after the last object of a page, relative to the path of the
// list. As in kube-apiserver, any list accepts the token of another.
func key(c *call.Call, last *objects.Object) string {
	if acrossNamespaces(c) {
		return last.Namespace + "/" + last.Name + "\x00"
	}
	return last.Name + "\x00"
}

// startAfter sets where the page begins: after the key of a continue token.
func (pg *Page) startAfter(c *call.Call, key string) {
	key = strings.TrimPrefix(key, KeyPrefix)
	if acrossNamespaces(c) {
		pg.afterNamespace, pg.afterName, _ = strings.Cut(key, "/")
	} else {
		pg.afterNamespace, pg.afterName = c.Key.Namespace, key
	}
}

func acrossNamespaces(c *call.Call) bool { return c.Kind.Kind.Namespaced && c.Key.Namespace == "" }

// PageOf returns the page of a list that the options ask for.
func (rd *Reader) PageOf(ctx context.Context, c *call.Call, o *internalversion.ListOptions) (Page, error) {
	pg := Page{limit: math.MaxInt}
	if o.Limit > 0 && o.ResourceVersion != "0" { // upstream ignores the limit with "0"
		pg.limit = int(o.Limit)
	}
	switch {
	case o.Continue != "":
		key, revision, err := storage.DecodeContinue(o.Continue, KeyPrefix)
		if err != nil {
			return pg, status.BadRequestf("invalid continue token: %v", err)
		}
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return pg, status.BadRequest("specifying resource version is not allowed when using continue")
		}
		pg.startAfter(c, key)
		if revision < 0 { // an inconsistent list: from the same key on, at the newest revision
			return pg, rd.newest(ctx, c, "", &pg)
		}
		if err := rd.See(ctx, c, strconv.FormatInt(revision, 10)); apierrors.IsResourceExpired(err) {
			return pg, expiredContinue(key)
		} else if err != nil {
			return pg, err
		}
		if err := rd.CheckWindow(ctx, c, uint64(revision)); err != nil {
			return pg, withContinue(err, key)
		}
		pg.revision, pg.OfPast = uint64(revision), true
		if err := rd.Past.Kept(pg.revision); err != nil {
			return pg, expiredContinue(key)
		}
		return pg, nil
	case Exactly(o):
		var err error
		pg.revision, err = rd.Exact(ctx, c, o.ResourceVersion)
		pg.OfPast = true
		return pg, err
	default:
		return pg, rd.newest(ctx, c, o.ResourceVersion, &pg)
	}
}

// newest makes the page one of the newest state.
func (rd *Reader) newest(ctx context.Context, c *call.Call, resourceVersion string, pg *Page) error {
	if err := rd.See(ctx, c, resourceVersion); err != nil {
		return err
	}
	pg.revision, pg.OfPast = c.World().Revision(), c.Past.Tip != nil
	if pg.OfPast {
		return nil
	}
	var err error
	pg.state, err = rd.currentState(ctx, c)
	return err
}

// Exactly reports whether a list must be of exactly its resourceVersion.
func Exactly(o *internalversion.ListOptions) bool {
	return o.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		o.ResourceVersionMatch == "" && o.Limit > 0 && o.ResourceVersion != "" && o.ResourceVersion != "0" // as upstream
}

// expiredContinue returns kube-apiserver's error for a token whose revision has expired: 410, with a token that
// continues from the same key at the newest revision.
func expiredContinue(key string) error {
	return withContinue(status.Expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."), key)
}

// withContinue adds a token to an Expired error that continues from the same key at the newest revision.
func withContinue(err error, key string) error {
	expired := (*status.Error)(nil)
	if token, encodeErr := storage.EncodeContinue(key, KeyPrefix, -1); encodeErr == nil && errors.As(err, &expired) && apierrors.IsResourceExpired(err) {
		expired.ErrStatus.ListMeta.Continue = token
	}
	return err
}
