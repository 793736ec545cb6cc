package core

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/managed"
	"stele.dev/stele/core/metadata"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/patch"
	"stele.dev/stele/core/wire"
	"stele.dev/stele/schemas/builtin"
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
	r.oldMeta, r.oldContent, r.warnings = nil, nil, nil
	r.warnDeprecated()
	if r.body == nil {
		if err := r.readBody(); err != nil {
			return err
		}
	}
	if r.large() {
		done, err := p.takeTurn(ctx)
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
		return r.decodeDelete()
	}
}

// readBody reads the body and the options of a write. What is wrong is found in upstream's order,
// which is another one for each verb.
func (r *Request) readBody() error {
	b := &body{mediaType: negotiate.JSON}
	var err error
	if r.info.Verb == "patch" {
		if b.mediaType, err = r.patchType(); err != nil {
			return err
		}
	}
	if _, err := r.format(); err != nil {
		return err
	}
	if r.info.Verb == "create" {
		if b.mediaType, err = negotiate.Body(r.http); err != nil {
			return err
		}
	}
	if b.raw, err = readLimited(r.http); err != nil {
		return err
	}
	if (r.info.Verb == "delete" || r.info.Verb == "deletecollection") && len(b.raw) > 0 {
		if b.mediaType, err = negotiate.Body(r.http); err != nil {
			return err
		}
	}
	if err := b.readOptions(r); err != nil {
		return err
	}
	if r.info.Verb == "update" {
		if b.mediaType, err = negotiate.Body(r.http); err != nil {
			return err
		}
	}
	if r.info.Verb == "patch" && types.PatchType(b.mediaType) != types.ApplyYAMLPatchType && !json.Valid(b.raw) {
		return apierrors.NewBadRequest("invalid JSON patch") // before it is looked whether there is anything to patch
	}
	r.body = b
	if b.mediaType == negotiate.Protobuf || b.mediaType == negotiate.CBOR {
		return r.convertBody()
	}
	return nil
}

// convertBody makes JSON of the body, which all that follows takes it for.
func (r *Request) convertBody() error {
	text, said, err := wire.Decode(r.body.mediaType, r.body.raw, r.seen().GroupVersionKind())
	if err != nil {
		err = r.undecodable(said.Kind, err)
		r.body = nil
		return err
	}
	if len(text) > 2*maxBody { // Base64 and escaped text take more room
		r.body = nil
		return tooLarge()
	}
	r.body.raw, r.body.mediaType = text, negotiate.JSON
	return nil
}

func (r *Request) patchType() (string, error) {
	t, err := patch.TypeOf(r.http.Header.Get("Content-Type"), r.kind.GroupVersionKind())
	return string(t), err
}

func readLimited(h *http.Request) ([]byte, error) {
	if h.Body == nil {
		return nil, nil
	}
	if h.ContentLength > maxBody {
		_, _ = io.CopyN(io.Discard, h.Body, maxBody+1) // a client that still writes may not hear the answer
		return nil, tooLarge()
	}
	// One allocation where the length is known.
	raw := make([]byte, 0, max(512, min(h.ContentLength+1, maxBody+1)))
	limited := io.LimitReader(h.Body, maxBody+1)
	for {
		n, err := limited.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		if len(raw) > maxBody {
			return nil, tooLarge()
		}
		if err == io.EOF {
			return raw, nil
		}
		if err != nil {
			var tooLong *http.MaxBytesError
			if errors.As(err, &tooLong) {
				return nil, tooLarge()
			}
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the body could not be read: %v", err))
		}
		if len(raw) == cap(raw) {
			raw = append(raw, 0)[:len(raw)]
		}
	}
}

// readOptions reads the query of a write, and of a delete also its body.
func (b *body) readOptions(r *Request) error {
	o := &metav1.PatchOptions{} // has all that CreateOptions and UpdateOptions have
	if err := decodeQuery(r, o); err != nil {
		return err
	}
	dryRun, manager, validation := o.DryRun, o.FieldManager, o.FieldValidation
	var errs field.ErrorList
	kind := "PatchOptions"
	switch r.info.Verb {
	case "create":
		kind, errs = "CreateOptions", metav1validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
	case "update":
		kind, errs = "UpdateOptions", metav1validation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
	case "patch":
		errs = metav1validation.ValidatePatchOptions(o, types.PatchType(b.mediaType))
	case "delete", "deletecollection":
		o, err := b.deleteOptions(r)
		if err != nil {
			return err
		}
		b.delete, dryRun = o, o.DryRun
		kind, errs = "DeleteOptions", validateDelete(o, r.info.Verb)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	if validation == "" {
		validation = metav1.FieldValidationWarn
	}
	if manager == "" {
		manager = managed.Manager(r.http.UserAgent())
	}
	b.options = writeOptions{dryRun: len(dryRun) > 0, fieldManager: manager, validation: validation, force: o.Force != nil && *o.Force}
	return nil
}

func (b *body) deleteOptions(r *Request) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if len(b.raw) > 0 {
		text, err := wire.DeleteOptions(b.mediaType, b.raw)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		b.raw, b.mediaType = text, negotiate.JSON
		as, err := serializer.DefaultMetaFactory.Interpret(text)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if as.Kind != "" && as.Kind != "DeleteOptions" {
			return nil, apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return o, nil
	}
	return o, decodeQuery(r, o)
}

// decodeQuery reads options from the query.
func decodeQuery(r *Request, into runtime.Object) error {
	if err := internalscheme.ParameterCodec.DecodeParameters(r.http.URL.Query(), metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// parse decodes a body or a patched object. Duplicate fields, and those that strict
// says of a patch, are treated as fieldValidation asks.
func (r *Request) parse(text []byte, strict []error) (*object, error) {
	text, strict, err := r.toJSON(text, strict)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	duplicates, err := kjson.UnmarshalStrict(text, &content)
	if err != nil {
		return nil, r.undecodable("", cmp.Or(uninterpretable(text), err))
	}
	if content == nil {
		if !r.seen().Kind.Builtin {
			return nil, r.undecodable("", r.missingKind(text))
		}
		return nil, r.undecodable("", errors.New("the object is null"))
	}
	strict = append(strict, duplicates...)
	if err := r.checkType(content, text); err != nil {
		return nil, err
	}
	meta, unknown, err := metadata.Decode(content)
	if err != nil {
		if !r.kind.Kind.Builtin { // of which upstream decodes the metadata alone
			err = errors.New(strings.NewReplacer("ObjectMeta.metadata.", "ObjectMeta.", "Go struct field metadata of type", "Go value of type").Replace(err.Error()))
		}
		kind, _ := content["kind"].(string)
		return nil, r.undecodable(cmp.Or(kind, r.kind.Kind.Kind.Kind), err)
	}
	for _, u := range unknown {
		strict = append(strict, errors.New(u))
	}
	return &object{meta: meta, content: content, text: text}, r.strict(strict)
}

// uninterpretable is what upstream says of a text in which it looks for apiVersion and kind.
func uninterpretable(text []byte) error {
	_, err := serializer.DefaultMetaFactory.Interpret(text)
	return err
}

// toJSON converts a body that is YAML, and adds what is wrong with it to strict.
func (r *Request) toJSON(text []byte, strict []error) ([]byte, []error, error) {
	if r.body.mediaType != negotiate.YAML {
		return text, strict, nil
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		strict = append(strict, err)
		if converted, err = yaml.YAMLToJSON(text); err != nil {
			if r.sensitive() { // which it may quote
				err = errors.New("it is not YAML")
			}
			return nil, nil, r.undecodable("", err)
		}
	}
	if len(converted) > maxBody {
		return nil, nil, tooLarge()
	}
	return converted, strict, nil
}

// checkType compares apiVersion and kind with what is served at the path. Objects of
// built-in kinds need not say them, others have to say their kind.
func (r *Request) checkType(content map[string]any, text []byte) error {
	want := r.seen().GroupVersionKind()
	r.mistyped = nil
	for _, key := range []string{"apiVersion", "kind"} {
		if _, ok := content[key].(string); !ok && content[key] != nil {
			return r.undecodable("", uninterpretable(text))
		}
	}
	if k, _ := content["kind"].(string); k == "" && !r.seen().Kind.Builtin {
		return r.undecodable("", r.missingKind(text))
	}
	v, _ := content["apiVersion"].(string)
	k, _ := content["kind"].(string)
	if _, err := schema.ParseGroupVersion(v); err != nil {
		return r.undecodable("", err)
	}
	custom := !r.seen().Kind.Builtin
	if custom && (r.info.Verb == "patch" || v == want.GroupVersion().String()) {
		r.mistyped = mistyped(want, v, k)
		return nil
	}
	if (v != "" || custom) && v != want.GroupVersion().String() {
		return otherVersion(v, want.GroupVersion())
	}
	if k != "" && k != want.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: no kind %q is served at %s",
			k, want.Version, want.Kind, k, r.info.Path))
	}
	return nil
}

// otherVersion is the answer to a body that says it is of another version than its path.
func otherVersion(said string, want schema.GroupVersion) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", said, want))
}

// mistyped is what validation says of an object that is not of the kind, but was decoded.
func mistyped(want schema.GroupVersionKind, version, kind string) *typeMismatch {
	var errs field.ErrorList
	if kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+want.Kind))
	}
	if version != want.GroupVersion().String() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), version, "must be "+want.GroupVersion().String()))
	}
	if len(errs) == 0 {
		return nil
	}
	return &typeMismatch{schema.FromAPIVersionAndKind(version, kind).GroupKind(), errs}
}

// typeMismatch is an error of validation, and the kind that it is about.
type typeMismatch struct {
	kind schema.GroupKind
	errs field.ErrorList
}

// undecodable is upstream's answer to a body that is no object of the kind. kind is
// what the body says it is, where that could be read.
func (r *Request) undecodable(kind string, err error) error {
	want := r.seen().GroupVersionKind()
	if r.info.Verb == "patch" {
		var patched any = string(r.patchedText())
		switch {
		case r.sensitive():
			patched = field.OmitValueType{}
		case types.PatchType(r.body.mediaType) == types.StrategicMergePatchType: // of which upstream shows the patch, as Go prints it
			var asked map[string]any
			if kjson.UnmarshalCaseSensitivePreserveInts(r.body.raw, &asked) == nil {
				patched = fmt.Sprintf("%+v", asked)
			}
		}
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), patched, err.Error())})
	}
	if kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind, want.Version, want.Kind, err))
	}
	shown := summary(r.body.raw)
	if r.sensitive() {
		shown = fmt.Sprintf("%d bytes", len(r.body.raw))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, shown))
}

// missingKind is what upstream says of a text that does not say its kind. Refusals are remembered,
// and read by others than who sent what is refused: so none quotes secrets.
func (r *Request) missingKind(text []byte) error {
	if r.sensitive() {
		return runtime.NewMissingKindErr("...")
	}
	return runtime.NewMissingKindErr(string(text))
}

// summary is what upstream shows of a body that it cannot make anything of.
func summary(body []byte) string {
	more := ""
	if len(body) > 30 {
		body, more = body[:30], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return strings.ToValidUTF8(string(body), "\ufffd") + more
	}
	return hex.EncodeToString(body) + more
}

// strict refuses, warns of, or ignores what strict decoding found.
func (r *Request) strict(found []error) error {
	return r.heed(found, func(err error) error { return r.undecodable(r.seen().Kind.Kind.Kind, err) })
}

// heed does with what strict decoding found as fieldValidation asks; refuse makes the answer.
func (r *Request) heed(found []error, refuse func(error) error) error {
	if len(found) == 0 {
		return nil
	}
	switch r.body.options.validation {
	case metav1.FieldValidationIgnore:
	case metav1.FieldValidationWarn:
		for _, e := range found {
			// What is wrong with a YAML document comes as one error of several lines.
			if lines, ok := strings.CutPrefix(e.Error(), "yaml: unmarshal errors:\n"); ok {
				for line := range strings.Lines(lines) {
					r.warn(strings.TrimSpace(line))
				}
				continue
			}
			r.warn(e.Error())
		}
	default:
		texts := make([]string, len(found))
		for i, e := range found {
			texts[i] = e.Error()
		}
		return refuse(errors.New("strict decoding error: " + strings.Join(texts, ", ")))
	}
	return nil
}

// maxWarnings and maxWarning bound what goes into headers.
const (
	maxWarnings = 64
	maxWarning  = 256
)

func (r *Request) warn(text string) {
	if len(r.warnings) == maxWarnings {
		return
	}
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxWarning {
		text = strings.ToValidUTF8(text[:maxWarning], "") + "…"
	}
	r.warnings = append(r.warnings, text)
}

// warnDeprecated warns of a version that is deprecated, whatever is done with it.
func (r *Request) warnDeprecated() {
	if text := r.kind.Deprecated; text != "" {
		r.warn(text)
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
		return apierrors.NewInvalid(r.kind.GroupVersionKind().GroupKind(), o.meta.Name, field.ErrorList{err})
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
		return apierrors.NewBadRequest(err.Error())
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
	if r.kind.Status {
		delete(o.content, "status") // it has its own place and permission
	}
	asked := askedFinalizers(o.content)
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
	byClient := o
	if r.resource() == commit.Namespaces {
		byClient = &object{meta: o.meta, content: withFinalizers(o.content, asked)}
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
	if r.info.Subresource == "status" {
		// Nothing but the status is taken; of a kind that is not built in all has been decoded.
		if !r.kind.Kind.Builtin {
			if err := r.prepare(o, oldContent); err != nil {
				return err
			}
		}
		status, has := o.content["status"]
		o.content, o.meta = maps.Clone(oldContent), oldMeta.DeepCopy()
		setOrDelete(o.content, "status", status, has)
	} else {
		if r.kind.Status {
			status, has := oldContent["status"]
			setOrDelete(o.content, "status", status, has)
		}
		r.dropDuplicateOwners(o.meta)
		metadata.FillUpdate(o.meta, oldMeta)
		r.labelNamespace(o.meta)
	}
	asked := askedFinalizers(o.content)
	if err := r.prepare(o, oldContent); err != nil {
		return err
	}
	if r.info.Subresource == finalize {
		setFinalizers(o.content, asked)
	}
	r.object = o
	r.oldMeta, r.oldContent = oldMeta, oldContent
	r.manage(o, sent)
	return nil
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

func (r *Request) decodeDelete() error {
	r.object = nil
	if r.old == nil {
		return apierrors.NewNotFound(r.resource(), r.key.Name)
	}
	if err := r.refuseUnsafe(); err != nil {
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
