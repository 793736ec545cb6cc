package activation

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"slices"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// CompileSpec compiles the files of a spec, whose parts were uploaded or are in the log. Policies that are
// pushed are compiled one at a time, and so are those that somebody asks about: in plans, shadows and dry runs. Errors in the bundle are a Status that names each with its file and line.
func (v *Service) CompileSpec(ctx context.Context, c *call.Call, spec *Spec) (*compile.Result, error) {
	if v.Compile == nil {
		return nil, status.Unavailable("this replica does not compile policies")
	}
	turn := v.asking
	if c.Info.Resource == Plural && c.Mode.Is(call.Live) {
		turn = v.pushing
	}
	done, err := turn.TakeAside(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	source, err := v.sourceOf(ctx, c, spec)
	if err != nil {
		return nil, err
	}
	compiled, diags, err := v.Compile(ctx, source)
	if err == nil && len(diags) == 0 && v.Enforceable != nil {
		diags = v.Enforceable(ctx, compiled)
	}
	switch {
	case err != nil:
		return nil, err
	case len(diags) > 0:
		return nil, invalidPolicy(diags)
	}
	return compiled, nil
}

// sourceOf returns the source of a spec. Its parts were uploaded, or are in the log; an error names the parts that are
// in neither.
func (v *Service) sourceOf(ctx context.Context, c *call.Call, spec *Spec) (*bundles.Source, error) {
	source := &bundles.Source{Package: spec.Package}
	var missing []metav1.StatusCause
	have, size := map[string][]byte{}, 0
	for i, f := range spec.Files {
		contents := [][]byte{[]byte(f.Data)}
		size += len(f.Data)
		for j, digest := range f.Parts {
			part, known := have[digest]
			if !known {
				var err error
				if part, err = v.part(ctx, c, digest); err != nil {
					return nil, err
				}
				have[digest] = part
			}
			if part == nil {
				at := field.NewPath("spec", "files").Index(i).Child("parts").Index(j)
				missing = append(missing, metav1.StatusCause{Type: metav1.CauseTypeFieldValueNotFound, Field: at.String(), Message: digest})
			}
			// Check before copying: a small request can name one part many times.
			if size += len(part); size > bundles.MaxBytes {
				return nil, status.TooLarge("the files have more than %d MiB", bundles.MaxBytes>>20)
			}
			contents = append(contents, part)
		}
		if len(missing) == 0 { // otherwise the source is not used
			source.Files = append(source.Files, bundles.File{Path: f.Path, Data: slices.Concat(contents...)})
		}
	}
	if len(missing) > 0 {
		return nil, lacksParts(missing)
	}
	return source, nil
}

// part returns a part of a policy by its digest; nil if the server does not have it.
func (v *Service) part(ctx context.Context, c *call.Call, digest string) ([]byte, error) {
	d, err := policies.ParseDigest(digest)
	if err != nil {
		return nil, status.BadRequestf("spec.files: %v", err)
	}
	if v.Parts != nil {
		if data, ok := v.Parts.Get(d); ok {
			return data, nil
		}
	}
	return c.Tip.Policies.Chunk(ctx, v.Log, d)
}

// CheckFiles returns what is wrong with the files of a spec, before they are compiled.
func CheckFiles(at *field.Path, files []File) (errs field.ErrorList) {
	if len(files) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	seen := map[string]bool{}
	for i, f := range files {
		if !bundles.ValidPath(f.Path) {
			errs = append(errs, field.Invalid(at.Index(i).Child("path"), f.Path, "must be the path of a file of CUE, YAML or JSON, relative to the module's root"))
		}
		if seen[f.Path] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("path"), f.Path))
		}
		seen[f.Path] = true
		if f.Data != "" && len(f.Parts) > 0 {
			errs = append(errs, field.Forbidden(at.Index(i).Child("parts"), "may not be set together with data"))
		}
	}
	return errs
}

// invalidPolicy returns the error for a bundle with errors. It has all of them, each with its file and line.
func invalidPolicy(diags schemas.Diagnostics) error {
	err := status.Invalid(schema.GroupKind{Group: Group, Kind: Kind}, "", nil)
	err.ErrStatus.Message = "the policy has errors:\n" + diags.Error()
	for _, d := range diags {
		at := d.Pos.String()
		d.Pos = schemas.Position{} // clients print the field before the message
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: at, Message: d.String()})
	}
	return err
}
