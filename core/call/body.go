package call

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/status"
)

// ReadLimited reads a body of at most MaxBody bytes, or returns the one that [Fetch] has read. If the body bounds the memory
// for decoding, as those of package memory do, it waits for that.
func ReadLimited(h *http.Request) ([]byte, error) {
	body := h.Body
	raw, err := []byte(nil), error(nil)
	if f, ok := body.(*fetched); ok {
		body, raw, err = f.ReadCloser, f.raw, f.err
	} else {
		raw, err = readAll(h)
	}
	if d, ok := body.(decoder); ok && err == nil {
		err = d.Decode()
	}
	return raw, err
}

// decoder is a body that is told when it will be decoded.
type decoder interface{ Decode() error }

// beginner is a body that is told before memory is used for it.
type beginner interface{ Begin() error }

// fetched is a body that has been read.
type fetched struct {
	io.ReadCloser
	raw []byte
	err error
}

// Fetch reads the body of a request, for ReadLimited. It returns an error if the body did not arrive, or if there is no
// memory for it. Errors of the body itself are returned by ReadLimited.
func Fetch(h *http.Request) error {
	if h.Body == nil || h.Body == http.NoBody || h.ContentLength == 0 {
		return nil
	}
	raw, err := readAll(h)
	h.Body = &fetched{h.Body, raw, err}
	if apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return nil
	}
	return err
}

// Fetched returns the body that [Fetch] has read, before it is decoded; nil if it has not.
func Fetched(h *http.Request) []byte {
	if f, ok := h.Body.(*fetched); ok {
		return f.raw
	}
	return nil
}

// readAll reads a body of at most MaxBody bytes.
func readAll(h *http.Request) ([]byte, error) {
	if h.Body == nil {
		return nil, nil
	}
	if h.ContentLength > MaxBody {
		_, _ = io.CopyN(io.Discard, h.Body, MaxBody+1) // some clients read the answer only after they have sent the body
		return nil, status.BodyTooLarge()
	}
	if b, ok := h.Body.(beginner); ok {
		if err := b.Begin(); err != nil {
			return nil, err
		}
	}
	// A known length takes one allocation.
	raw := make([]byte, 0, max(512, min(h.ContentLength+1, MaxBody+1)))
	limited := io.LimitReader(h.Body, MaxBody+1)
	for {
		n, err := limited.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		if len(raw) > MaxBody {
			return nil, status.BodyTooLarge()
		}
		if err == io.EOF {
			return raw, nil
		}
		if err != nil {
			var tooLong *http.MaxBytesError
			var full apierrors.APIStatus
			switch {
			case errors.As(err, &tooLong):
				return nil, status.BodyTooLarge()
			case errors.As(err, &full), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
				return nil, err
			}
			return nil, status.BadRequestf("the body could not be read: %v", err)
		}
		if len(raw) == cap(raw) {
			raw = append(raw, 0)[:len(raw)]
		}
	}
}

// ReadOptions reads and validates the options of a write into b: from the query, and for a delete also from the body.
func (c *Call) ReadOptions(b *Body) error {
	o := &metav1.PatchOptions{} // has all fields of CreateOptions and UpdateOptions
	if err := DecodeQuery(c, o); err != nil {
		return err
	}
	dryRun, manager, validation := o.DryRun, o.FieldManager, o.FieldValidation
	var errs field.ErrorList
	kind := "PatchOptions"
	switch c.Info.Verb {
	case "create":
		kind, errs = "CreateOptions", metav1validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
	case "update":
		kind, errs = "UpdateOptions", metav1validation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
	case "patch":
		errs = metav1validation.ValidatePatchOptions(o, types.PatchType(b.MediaType))
	case "delete", "deletecollection":
		o, err := b.deleteOptions(c)
		if err != nil {
			return err
		}
		b.Delete, dryRun = o, o.DryRun
		kind, errs = "DeleteOptions", validateDelete(o, c.Info.Verb)
	}
	if len(errs) > 0 {
		return status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	validation = cmp.Or(validation, metav1.FieldValidationWarn)
	if manager == "" {
		manager = metadata.FieldManager(c.HTTP.UserAgent())
	}
	c.SetDryRun(len(dryRun) > 0)
	b.Options = WriteOptions{DryRun: len(dryRun) > 0, FieldManager: manager, Validation: validation, Force: o.Force != nil && *o.Force}
	return nil
}

// deleteOptions reads the options of a delete from the body, or from the query if the body is empty.
func (b *Body) deleteOptions(c *Call) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if len(b.Raw) > 0 {
		text, err := wire.DeleteOptions(b.MediaType, b.Raw)
		if err != nil {
			return nil, status.BadRequest(err.Error())
		}
		b.Raw, b.MediaType = text, negotiate.JSON
		as, err := serializer.DefaultMetaFactory.Interpret(text)
		if err != nil {
			return nil, status.BadRequest(err.Error())
		}
		if as.Kind != "" && as.Kind != "DeleteOptions" {
			return nil, status.BadRequest("decoded object cannot be converted to DeleteOptions")
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, o); err != nil {
			return nil, status.BadRequest(err.Error())
		}
		return o, nil
	}
	return o, DecodeQuery(c, o)
}

// DecodeQuery decodes options from the query.
func DecodeQuery(c *Call, into runtime.Object) error {
	if c.HTTP.URL.RawQuery == "" {
		return nil
	}
	if err := internalscheme.ParameterCodec.DecodeParameters(c.HTTP.URL.Query(), metav1.SchemeGroupVersion, into); err != nil {
		return status.BadRequest(err.Error())
	}
	return nil
}

func validateDelete(o *metav1.DeleteOptions, verb string) field.ErrorList {
	errs := metav1validation.ValidateDeleteOptions(o)
	if len(errs) == 0 && IgnoresReadErrors(o) && verb == "deletecollection" {
		errs = append(errs, field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option"))
	}
	return errs
}

// IgnoresReadErrors reports whether a delete is only for objects that cannot be read (KEP-3926).
func IgnoresReadErrors(o *metav1.DeleteOptions) bool {
	return o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// OtherVersion returns the error for a body whose apiVersion is not that of its path.
func OtherVersion(said string, want schema.GroupVersion) error {
	return status.BadRequestf("the API version in the data (%s) does not match the expected API version (%s)", said, want)
}

// Heed applies the option fieldValidation to errors of strict decoding: it ignores them, warns of them, or returns
// what refuse makes of them.
func (c *Call) Heed(found []error, refuse func(error) error) error {
	if len(found) == 0 {
		return nil
	}
	switch c.Body.Options.Validation {
	case metav1.FieldValidationIgnore:
	case metav1.FieldValidationWarn:
		for _, e := range found {
			// The YAML decoder returns all errors as one, a line each.
			if lines, ok := strings.CutPrefix(e.Error(), "yaml: unmarshal errors:\n"); ok {
				for line := range strings.Lines(lines) {
					c.Warn(strings.TrimSpace(line))
				}
				continue
			}
			c.Warn(e.Error())
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

// WriteOptions are the options that creates, updates and patches share; deletes use DryRun.
type WriteOptions struct {
	DryRun       bool
	FieldManager string
	Validation   string // metav1.FieldValidation...
	Force        bool   // takes fields from other managers
}

// ReadOptionalBody reads the body of a kind, and the options, unless an earlier round has.
func (c *Call) ReadOptionalBody(kind schema.GroupVersionKind) error {
	if c.Body != nil {
		return nil
	}
	b, err := c.ReadJSON(kind)
	if err != nil {
		return err
	}
	if err := c.ReadOptions(b); err != nil {
		return err
	}
	c.Body = b
	return nil
}

// ReadJSON reads the body, which must be of the kind, and converts it to JSON.
func (c *Call) ReadJSON(kind schema.GroupVersionKind) (*Body, error) {
	mediaType, err := negotiate.Body(c.HTTP)
	if err != nil {
		return nil, err
	}
	b := &Body{MediaType: mediaType}
	if b.Raw, err = ReadLimited(c.HTTP); err != nil {
		return nil, err
	}
	if b.Raw, _, err = wire.Decode(mediaType, b.Raw, kind); err != nil {
		return nil, Unfit(kind, err)
	}
	return b, nil
}

// Unfit returns the error for a body that is not an object of the kind.
func Unfit(kind schema.GroupVersionKind, err error) error {
	return status.BadRequest(kind.Kind + " in version \"" + kind.Version + "\" cannot be handled as a " + kind.Kind + ": " + err.Error())
}

// Body is the body of a write and its options, read once.
type Body struct {
	Raw       []byte
	MediaType string
	Options   WriteOptions
	Delete    *metav1.DeleteOptions // nil if the request is not a delete
}
