package edit

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/schemas/program"
)

// prepare prunes the object and fills in defaults. It handles unknown fields as the option fieldValidation says.
func (d *Draft) prepare(o *Object, old map[string]any) error {
	if d.Mistyped != nil {
		return nil // the stage schema reports the wrong type, and nothing else
	}
	var leftOut func(path string)
	if d.Kind.Program.Asks() {
		leftOut = d.warnOfDefault
	}
	unknown, changed, err := validity.PrepareNoting(d.Kind, o.Content, old, d.Applies(), leftOut)
	if err != nil {
		errs := field.ErrorList{err}
		if program.Retryable(errs) {
			return status.Unavailable(err.Error())
		}
		return status.Invalid(d.Kind.GroupVersionKind().GroupKind(), o.Meta.Name, errs)
	}
	o.Adapted = o.Adapted || changed
	if len(unknown) == 0 {
		return nil
	}
	if !d.Kind.Kind.Builtin {
		slices.Sort(unknown)
	}
	if o.Text == nil {
		o.Text = d.patchedText()
	}
	left := leftBehind(unknown, o.Text, old)
	var errs []error
	for _, u := range unknown {
		e := fmt.Errorf("unknown field %q", u)
		if left[u] && d.Body.Options.Validation == metav1.FieldValidationStrict {
			d.Warn(e.Error())
			continue
		}
		errs = append(errs, e)
	}
	return d.strict(errs)
}

// warnOfDefault warns that a default is left out.
func (d *Draft) warnOfDefault(path string) {
	d.Warn("the default of " + path + " is left out: the object would not be valid with it")
}

// leftBehind returns the unknown fields that have the same value in the old object. There they were known. They are
// fields of another alternative or condition of the schema, often defaults that the client has not sent, and so no
// mistake of the client.
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

// valuesAt returns the values in x at the paths, which are in the form that pruning returns.
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

func (d *Draft) decodeNew() error {
	o, err := d.parse(d.Body.Raw, nil)
	if err != nil {
		return err
	}
	// As upstream, a resourceVersion that is not a number is ignored.
	if v, err := strconv.ParseUint(o.Meta.ResourceVersion, 10, 64); err == nil && v != 0 {
		return status.BadRequest("resourceVersion should not be set on objects to be created")
	}
	if err := metadata.CheckNamespace(o.Meta, d.Key.Namespace); err != nil {
		return d.decoded(o, status.BadRequest(err.Error()))
	}
	return d.becomeNew(o)
}

// becomeNew makes o the object that is created: it fills in defaults and metadata.
func (d *Draft) becomeNew(o *Object) error {
	d.OldMeta, d.OldContent = nil, nil // set if the object existed in an earlier round
	d.dropDuplicateOwners(o.Meta)
	asked := askedFinalizers(o.Content)
	content := o.Content // as the client sent it
	if d.Kind.Status {
		if _, sent := content["status"]; sent && !d.Kind.Kind.Builtin {
			if err := d.prepare(o, nil); err != nil { // reports unknown fields in status, too
				return err
			}
			content = maps.Clone(o.Content)
		}
		delete(o.Content, "status") // status is written by its subresource
	}
	if err := d.prepare(o, nil); err != nil {
		return err
	}
	d.keepDefinitionStatus(o.Content)
	generation := int64(1)
	if !d.hasGeneration() {
		generation = 0
	}
	sent := o.Meta.ManagedFields
	if err := d.fillNew(o.Meta, generation); err != nil {
		return err
	}
	if err := d.requireAllowed(); err != nil {
		return err
	}
	byClient := &Object{Meta: o.Meta, Content: content}
	if d.Resource() == commit.Namespaces {
		byClient.Content = withFinalizers(o.Content, asked)
	}
	d.manage(byClient, sent)
	d.Object = o
	if err := d.requireLivingKind(); err != nil {
		return err
	}
	return d.RequireActiveNamespace()
}

// fillNew sets uid, creation time and generated name of a new object. They stay the same in all rounds. Only a
// generated name that is taken is replaced.
func (d *Draft) fillNew(meta *metav1.ObjectMeta, generation int64) error {
	generated := meta.Name == "" && meta.GenerateName != ""
	metadata.FillNew(meta, d.Key.Namespace, generation, d.Received)
	if d.fixed.UID != "" {
		meta.UID, meta.CreationTimestamp = d.fixed.UID, d.fixed.CreationTimestamp
		if generated {
			meta.Name = d.fixed.Name
		}
	}
	const tries = 8
	for i := 0; generated && d.Tip.Objects.Get(d.Resource(), d.Key.Namespace, meta.Name) != nil; i++ {
		if i == tries {
			return status.NameTaken(d.Resource(), meta.Name)
		}
		meta.Name = metadata.GenerateName(meta.GenerateName)
	}
	d.fixed = metav1.ObjectMeta{UID: meta.UID, CreationTimestamp: meta.CreationTimestamp, Name: meta.Name}
	d.Key.Name = strings.Clone(meta.Name) // the event keeps it, but not the body of which it is a part
	d.labelNamespace(meta)
	d.Old = d.Tip.Objects.Get(d.Resource(), d.Key.Namespace, d.Key.Name)
	return nil
}

// labelNamespace sets the label kubernetes.io/metadata.name of a namespace, by which selectors can name it.
func (d *Draft) labelNamespace(meta *metav1.ObjectMeta) {
	if d.Resource() == commit.Namespaces && meta.Name != "" {
		metav1.SetMetaDataLabel(meta, "kubernetes.io/metadata.name", meta.Name)
	}
}

func (d *Draft) decodeUpdate() error {
	o, err := d.parse(d.withoutOld(d.Body.Raw), nil)
	if err != nil {
		return err
	}
	if err := d.isNamed(o.Meta); err != nil {
		return d.decoded(o, err)
	}
	if d.Old == nil && !d.CreatesOnUpdate() {
		return d.decoded(o, status.NotFound(d.Resource(), d.Key.Name))
	}
	if err := d.isIdentified(o.Meta.UID); err != nil {
		return d.decoded(o, err)
	}
	if d.Old == nil {
		return d.becomeNew(o)
	}
	return d.become(o)
}

func (d *Draft) decodePatch() error {
	if d.Old == nil {
		return status.NotFound(d.Resource(), d.Key.Name)
	}
	o := d.merged()
	if o == nil {
		target, err := d.patchTarget()
		if err != nil {
			return err
		}
		patched, strict, err := patch.Apply(d.Kind.GroupVersionKind(), types.PatchType(d.Body.MediaType), target, d.Body.Raw)
		if err != nil {
			return err
		}
		d.patchedBody = patched
		if o, err = d.parse(patched, strict); err != nil {
			return err
		}
	}
	if err := d.isNamed(o.Meta); err != nil {
		return d.decoded(o, err)
	}
	return d.become(o)
}

// decoded returns an error that kube-apiserver finds after it has decoded the object. For custom resources, unknown
// fields are reported first: as warnings beside err, or as the error in its place.
func (d *Draft) decoded(o *Object, err error) error {
	if d.Kind.Kind.Builtin {
		return err
	}
	if unknown := d.prepare(o, nil); unknown != nil {
		return unknown
	}
	return err
}

// become makes o the object that replaces the stored one.
func (d *Draft) become(o *Object) error {
	oldMeta, oldContent := d.OldMeta, d.OldContent
	if oldMeta == nil {
		var err error
		if oldMeta, oldContent, err = d.DecodeStored(d.Old.JSON); err != nil {
			return err
		}
	}
	switch v := o.Meta.ResourceVersion; {
	case v == "" || v == "0":
		if !d.Kind.AllowUnconditionalUpdate {
			return d.decoded(o, status.Invalid(schema.GroupKind{Group: d.Key.Group, Kind: d.Key.Resource}, d.Key.Name, field.ErrorList{ // sic, as upstream
				field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")}))
		}
	case v != oldMeta.ResourceVersion:
		if _, err := call.ParseRevision(v); err != nil {
			return err
		}
		return d.decoded(o, status.Modified(d.Resource(), d.Key.Name))
	}
	if oldMeta.DeletionTimestamp == nil {
		if err := d.requireAllowed(); err != nil {
			return err
		}
	}
	oldMeta.ResourceVersion = ""
	sent := o.Meta.ManagedFields
	asked := askedFinalizers(o.Content)
	byClient, err := d.keepApart(o, oldMeta, oldContent)
	if err != nil {
		return err
	}
	if byClient == o || d.Kind.Kind.Definition.IsZero() { // otherwise keepApart has prepared all of it
		if err := d.prepare(o, oldContent); err != nil {
			return err
		}
	}
	if d.Info.Subresource == call.Finalize {
		setFinalizers(o.Content, asked)
	}
	d.Object = o
	d.OldMeta, d.OldContent = oldMeta, oldContent
	d.keepDefinitionStatus(o.Content)
	d.manage(byClient, sent)
	o.Meta.ManagedFields = byClient.Meta.ManagedFields
	return nil
}

// keepApart resets the fields of o that this write cannot change: status, or for the subresource status all others.
// It returns the object as the client sent it, from which managedFields follow. For custom resources that is prepared
// before fields are reset, so that unknown fields are reported in all of it.
func (d *Draft) keepApart(o *Object, oldMeta *metav1.ObjectMeta, oldContent map[string]any) (byClient *Object, err error) {
	byClient = o
	if !d.Kind.Kind.Builtin && (d.Info.Subresource == "status" || d.Kind.Status && !canonical.Equal(o.Content["status"], oldContent["status"])) {
		if err := d.prepare(o, oldContent); err != nil {
			return nil, err
		}
		byClient = &Object{Meta: o.Meta, Content: maps.Clone(o.Content)}
	}
	if d.Info.Subresource == "status" {
		status, has := o.Content["status"]
		o.Content, o.Meta = maps.Clone(oldContent), oldMeta.DeepCopy()
		setOrDelete(o.Content, "status", status, has)
		return byClient, nil
	}
	if d.Kind.Status {
		status, has := oldContent["status"]
		setOrDelete(o.Content, "status", status, has)
	}
	d.dropDuplicateOwners(o.Meta)
	metadata.FillUpdate(o.Meta, oldMeta)
	d.labelNamespace(o.Meta)
	return byClient, nil
}

func setOrDelete(m map[string]any, key string, value any, has bool) {
	if has {
		m[key] = value
	} else {
		delete(m, key)
	}
}

func (d *Draft) decodeDelete(ctx context.Context) error {
	d.Object = nil
	if d.Old == nil {
		return status.NotFound(d.Resource(), d.Key.Name)
	}
	if err := d.refuseUnsafe(ctx); err != nil {
		return err
	}
	if pre := d.Body.Delete.Preconditions; pre != nil {
		kind := schema.GroupResource{Group: d.Kind.Kind.Group, Resource: d.Kind.Kind.Kind.Kind} // sic, as upstream
		if pre.UID != nil && string(*pre.UID) != d.Old.UID {
			return status.Conflict(kind, d.Key.Name, fmt.Errorf(
				"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *pre.UID, d.Old.UID))
		}
		if now := fmt.Sprint(d.Old.Revision); pre.ResourceVersion != nil && *pre.ResourceVersion != now {
			return status.Conflict(kind, d.Key.Name, fmt.Errorf(
				"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *pre.ResourceVersion, now))
		}
	}
	if err := d.checkShown(); err != nil {
		return err
	}
	return d.checkMortal()
}

// checkShown returns an error if the stored object cannot be converted to the version of the request, so that the answer of a delete
// could not show it. A client that asks for metadata alone gets that in each case: so the garbage collector and the deletion of
// namespaces do not depend on conversions.
func (d *Draft) checkShown() error {
	if !d.Kind.Kind.Converts() {
		return nil
	}
	if f, err := d.Format(); err == nil && f.As == negotiate.Metadata {
		return nil
	}
	_, err := d.Shown(d.Old.JSON)
	return err
}
