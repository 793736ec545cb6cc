package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/canonical"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/program"
)

// errModified is upstream's text of an optimistic lock that failed.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// decode finds out which object is meant: it reads the body, applies a patch to what
// the tip has, prunes and defaults. It runs again, on the same body, if the object has
// changed before the commit.
func (p *Pipeline) decode(ctx context.Context, r *Request) error {
	if r.law {
		return p.decodePolicy(r)
	}
	if r.rendered != nil {
		return r.refuseRendered()
	}
	r.old = r.tip.Objects.Get(r.resource(), r.key.Namespace, r.key.Name)
	r.oldMeta, r.oldContent = nil, nil
	r.warnDeprecated(r.kind)
	if r.body == nil {
		if err := r.readBody(); err != nil {
			return err
		}
	}
	if r.large() {
		done, err := p.largeWrites.take(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	if r.scales() {
		return r.decodeScale()
	}
	switch r.info.Verb {
	case "create":
		return r.decodeNew()
	case "update":
		return r.decodeUpdate()
	case "patch":
		if r.applies() {
			return r.decodeApply()
		}
		return r.decodePatch()
	default:
		return r.decodeDelete(ctx)
	}
}

// prepare prunes the object and fills in defaults.
func (r *Request) prepare(o *object, old map[string]any) error {
	if r.mistyped != nil {
		return nil // validation says so, and no more than that
	}
	if r.kind.Kind.Builtin {
		asked := runtime.DeepCopyJSON(o.content)
		builtin.Prepare(r.kind.Kind.Kind.Kind, o.content, old)
		o.adapted = o.adapted || !reflect.DeepEqual(asked, o.content)
	}
	prepare := r.kind.Program.TryPrepare
	if r.applies() {
		prepare = r.kind.Program.TryPrepareApplied
	}
	unknown, changed, err := prepare(o.content)
	if err != nil {
		errs := field.ErrorList{err}
		if program.Retryable(errs) {
			return status.Unavailable(err.Error())
		}
		return apierrors.NewInvalid(r.kind.GroupVersionKind().GroupKind(), o.meta.Name, errs)
	}
	o.adapted = o.adapted || changed
	if len(unknown) == 0 {
		return nil
	}
	if !r.kind.Kind.Builtin {
		slices.Sort(unknown)
	}
	if o.text == nil {
		o.text = r.patchedText()
	}
	left := leftBehind(unknown, o.text, old)
	var errs []error
	for _, u := range unknown {
		e := fmt.Errorf("unknown field %q", u)
		if left[u] && r.body.options.validation == metav1.FieldValidationStrict {
			r.warn(e.Error())
			continue
		}
		errs = append(errs, e)
	}
	return r.strict(errs)
}

// leftBehind are those of the unknown fields that the old object has with the same value. It
// knew them, and they belong to another alternative or condition than what is written now:
// a default that was filled in there is no mistake of who does not send it.
func leftBehind(unknown []string, asked []byte, old map[string]any) map[string]bool {
	var content map[string]any
	if old == nil || kjson.UnmarshalCaseSensitivePreserveInts(asked, &content) != nil {
		return nil
	}
	paths := sets.New(unknown...)
	is, was := valuesAt(paths, content), valuesAt(paths, old)
	left := map[string]bool{}
	for _, u := range unknown {
		before, has := was[u]
		left[u] = has && reflect.DeepEqual(is[u], before)
	}
	return left
}

// valuesAt returns the values in x that paths lead to, as pruning writes paths.
func valuesAt(paths sets.Set[string], x map[string]any) map[string]any {
	values := map[string]any{}
	var walk func(path string, x any)
	walk = func(path string, x any) {
		if paths.Has(path) {
			values[path] = x
			return
		}
		switch x := x.(type) {
		case []any:
			for i := range x {
				walk(fmt.Sprintf("%s[%d]", path, i), x[i])
			}
		case map[string]any:
			for name, value := range x {
				walk(strings.TrimPrefix(path+"."+name, "."), value)
			}
		}
	}
	walk("", x)
	return values
}

func (r *Request) decodeNew() error {
	o, err := r.parse(r.body.raw, nil)
	if err != nil {
		return err
	}
	// As upstream has it, what is no number is none.
	if v, err := strconv.ParseUint(o.meta.ResourceVersion, 10, 64); err == nil && v != 0 {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if err := metadata.CheckNamespace(o.meta, r.key.Namespace); err != nil {
		return r.decoded(o, apierrors.NewBadRequest(err.Error()))
	}
	return r.becomeNew(o)
}

// createsOnUpdate tells whether an update of what is not there creates it.
func (r *Request) createsOnUpdate() bool {
	return r.kind.AllowCreateOnUpdate && r.info.Subresource == ""
}

// becomeNew makes o what is to be created.
func (r *Request) becomeNew(o *object) error {
	r.oldMeta, r.oldContent = nil, nil // it may have been there in an earlier round
	r.dropDuplicateOwners(o.meta)
	asked := askedFinalizers(o.content)
	content := o.content // as the client has it
	if r.kind.Status {
		if _, sent := content["status"]; sent && !r.kind.Kind.Builtin {
			if err := r.prepare(o, nil); err != nil { // what it does not know is told
				return err
			}
			content = maps.Clone(o.content)
		}
		delete(o.content, "status") // it has its own place and permission
	}
	if err := r.prepare(o, nil); err != nil {
		return err
	}
	generation := int64(1)
	if r.kind.Kind.Builtin {
		generation = 0
	}
	sent := o.meta.ManagedFields
	if err := r.fillNew(o.meta, generation); err != nil {
		return err
	}
	byClient := &object{meta: o.meta, content: content}
	if r.resource() == commit.Namespaces {
		byClient.content = withFinalizers(o.content, asked)
	}
	r.manage(byClient, sent)
	r.object = o
	return r.namespaceTakesNew()
}

// fillNew decides uid, time and generated name once; only a generated name that is
// taken is drawn again.
func (r *Request) fillNew(meta *metav1.ObjectMeta, generation int64) error {
	generated := meta.Name == "" && meta.GenerateName != ""
	metadata.FillNew(meta, r.key.Namespace, generation, r.received)
	if r.fixed.UID != "" {
		meta.UID, meta.CreationTimestamp = r.fixed.UID, r.fixed.CreationTimestamp
		if generated {
			meta.Name = r.fixed.Name
		}
	}
	const tries = 8
	for i := 0; generated && r.tip.Objects.Get(r.resource(), r.key.Namespace, meta.Name) != nil; i++ {
		if i == tries {
			return apierrors.NewGenerateNameConflict(r.resource(), meta.Name, 1)
		}
		meta.Name = metadata.GenerateName(meta.GenerateName)
	}
	r.fixed = metav1.ObjectMeta{UID: meta.UID, CreationTimestamp: meta.CreationTimestamp, Name: meta.Name}
	r.key.Name = meta.Name
	r.labelNamespace(meta)
	r.old = r.tip.Objects.Get(r.resource(), r.key.Namespace, r.key.Name)
	return nil
}

// labelNamespace gives namespaces the label by which selectors can name them, as
// upstream does.
func (r *Request) labelNamespace(meta *metav1.ObjectMeta) {
	if r.resource() == commit.Namespaces && meta.Name != "" {
		metav1.SetMetaDataLabel(meta, "kubernetes.io/metadata.name", meta.Name)
	}
}

// namespaceTakesNew refuses new objects in a namespace that is not there or is going.
func (r *Request) namespaceTakesNew() error {
	if r.key.Namespace == "" {
		return nil
	}
	exists, active := commit.NamespaceState(r.tip.Objects, r.key.Namespace)
	if !exists {
		return apierrors.NewNotFound(commit.Namespaces, r.key.Namespace)
	}
	if !active {
		err := apierrors.NewForbidden(r.resource(), r.key.Name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", r.key.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: "NamespaceTerminating", Message: fmt.Sprintf("namespace %s is being terminated", r.key.Namespace), Field: "metadata.namespace",
		})
		return err
	}
	return nil
}

func (r *Request) decodeUpdate() error {
	o, err := r.parse(r.withoutOld(r.body.raw), nil)
	if err != nil {
		return err
	}
	if err := r.isNamed(o.meta); err != nil {
		return r.decoded(o, err)
	}
	if r.old == nil && !r.createsOnUpdate() {
		return r.decoded(o, apierrors.NewNotFound(r.resource(), r.key.Name))
	}
	if err := r.isIdentified(o.meta.UID); err != nil {
		return r.decoded(o, err)
	}
	if r.old == nil {
		return r.becomeNew(o)
	}
	return r.become(o)
}

func (r *Request) decodePatch() error {
	if r.old == nil {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	o := r.merged()
	if o == nil {
		patched, strict, err := patch.Apply(r.kind.GroupVersionKind(), types.PatchType(r.body.mediaType), r.patched(), r.body.raw)
		if err != nil {
			return err
		}
		r.body.patched = patched
		if o, err = r.parse(patched, strict); err != nil {
			return err
		}
	}
	if err := r.isNamed(o.meta); err != nil {
		return r.decoded(o, err)
	}
	return r.become(o)
}

// decoded is an error that upstream finds after it has decoded an object of a kind that is
// not built in: what that knows of unknown fields is said as well, or instead.
func (r *Request) decoded(o *object, err error) error {
	if r.kind.Kind.Builtin {
		return err
	}
	if unknown := r.prepare(o, nil); unknown != nil {
		return unknown
	}
	return err
}

// become makes o what the old object is to become.
func (r *Request) become(o *object) error {
	oldMeta, oldContent := r.oldMeta, r.oldContent
	if oldMeta == nil {
		var err error
		if oldMeta, oldContent, err = r.decodeStored(r.old.JSON); err != nil {
			return err
		}
	}
	switch v := o.meta.ResourceVersion; {
	case v == "" || v == "0":
		if !r.kind.AllowUnconditionalUpdate {
			return r.decoded(o, apierrors.NewInvalid(schema.GroupKind{Group: r.key.Group, Kind: r.key.Resource}, r.key.Name, field.ErrorList{ // sic, as upstream
				field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")}))
		}
	case v != oldMeta.ResourceVersion:
		if _, err := parseRevision(v); err != nil {
			return err
		}
		return r.decoded(o, apierrors.NewConflict(r.resource(), r.key.Name, errModified))
	}
	oldMeta.ResourceVersion = ""
	sent := o.meta.ManagedFields
	asked := askedFinalizers(o.content)
	byClient, err := r.keepApart(o, oldMeta, oldContent)
	if err != nil {
		return err
	}
	if byClient == o || len(r.kind.Kind.Definition) == 0 { // else all of it has been prepared
		if err := r.prepare(o, oldContent); err != nil {
			return err
		}
	}
	if r.info.Subresource == finalize {
		setFinalizers(o.content, asked)
	}
	r.object = o
	r.oldMeta, r.oldContent = oldMeta, oldContent
	r.manage(byClient, sent)
	o.meta.ManagedFields = byClient.meta.ManagedFields
	return nil
}

// keepApart takes from o what is not to be written through its place: its status, or all but
// that. It returns the object as the client has it, by which managedFields go: of a kind that
// is not built in that is o as it was, prepared, so that what the schema does not know is told
// of all that was sent.
func (r *Request) keepApart(o *object, oldMeta *metav1.ObjectMeta, oldContent map[string]any) (byClient *object, err error) {
	byClient = o
	if !r.kind.Kind.Builtin && (r.info.Subresource == "status" || r.kind.Status && !canonical.Equal(o.content["status"], oldContent["status"])) {
		if err := r.prepare(o, oldContent); err != nil {
			return nil, err
		}
		byClient = &object{meta: o.meta, content: maps.Clone(o.content)}
	}
	if r.info.Subresource == "status" {
		status, has := o.content["status"]
		o.content, o.meta = maps.Clone(oldContent), oldMeta.DeepCopy()
		setOrDelete(o.content, "status", status, has)
		return byClient, nil
	}
	if r.kind.Status {
		status, has := oldContent["status"]
		setOrDelete(o.content, "status", status, has)
	}
	r.dropDuplicateOwners(o.meta)
	metadata.FillUpdate(o.meta, oldMeta)
	r.labelNamespace(o.meta)
	return byClient, nil
}

func setOrDelete(m map[string]any, key string, value any, has bool) {
	if has {
		m[key] = value
	} else {
		delete(m, key)
	}
}

// decodeStored decodes what the server itself has written.
func decodeStored(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	meta, content, err := metadata.DecodeStored(text)
	if err != nil {
		return nil, nil, fmt.Errorf("core: stored object: %w", err)
	}
	return meta, content, nil
}

func (r *Request) decodeDelete(ctx context.Context) error {
	r.object = nil
	if r.old == nil {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	if err := r.refuseUnsafe(ctx); err != nil {
		return err
	}
	if pre := r.body.delete.Preconditions; pre != nil {
		kind := schema.GroupResource{Group: r.kind.Kind.Group, Resource: r.kind.Kind.Kind.Kind} // sic, as upstream
		if pre.UID != nil && string(*pre.UID) != r.old.UID {
			return apierrors.NewConflict(kind, r.key.Name, fmt.Errorf(
				"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *pre.UID, r.old.UID))
		}
		if now := fmt.Sprint(r.old.Revision); pre.ResourceVersion != nil && *pre.ResourceVersion != now {
			return apierrors.NewConflict(kind, r.key.Name, fmt.Errorf(
				"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *pre.ResourceVersion, now))
		}
	}
	return r.checkMortal()
}
