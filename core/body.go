package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

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
	"stele.dev/stele/core/managed"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/patch"
	"stele.dev/stele/core/wire"
)

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
			var full apierrors.APIStatus
			switch {
			case errors.As(err, &tooLong):
				return nil, tooLarge()
			case errors.As(err, &full), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
				return nil, err
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
