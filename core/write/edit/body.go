package edit

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/status"
)

// ReadBody reads the body and the options of a write. It checks them in the same order as kube-apiserver, which
// depends on the verb, so that a request with several errors gets the same one.
func (d *Draft) ReadBody() error {
	b := &call.Body{MediaType: negotiate.JSON}
	var err error
	if d.Info.Verb == "patch" {
		if b.MediaType, err = d.PatchType(); err != nil {
			return err
		}
	}
	if _, err := d.Format(); err != nil {
		return err
	}
	if d.Info.Verb == "create" {
		if b.MediaType, err = negotiate.Body(d.HTTP); err != nil {
			return err
		}
	}
	if b.Raw, err = call.ReadLimited(d.HTTP); err != nil {
		return err
	}
	if (d.Info.Verb == "delete" || d.Info.Verb == "deletecollection") && len(b.Raw) > 0 {
		if b.MediaType, err = negotiate.Body(d.HTTP); err != nil {
			return err
		}
	}
	if err := d.ReadOptions(b); err != nil {
		return err
	}
	if d.Info.Verb == "update" {
		if b.MediaType, err = negotiate.Body(d.HTTP); err != nil {
			return err
		}
	}
	if d.Info.Verb == "patch" && types.PatchType(b.MediaType) != types.ApplyYAMLPatchType && !json.Valid(b.Raw) {
		return status.BadRequest("invalid JSON patch") // before a missing object is reported
	}
	d.Body = b
	if b.MediaType == negotiate.Protobuf || b.MediaType == negotiate.CBOR {
		return d.convertBody()
	}
	return nil
}

// convertBody converts a Protobuf or CBOR body to JSON.
func (d *Draft) convertBody() error {
	text, said, err := wire.Decode(d.Body.MediaType, d.Body.Raw, d.Seen().GroupVersionKind())
	if err != nil {
		err = d.Undecodable(said.Kind, err)
		d.Body = nil
		return err
	}
	if len(text) > 2*call.MaxBody { // Base64 and escaped text take more room
		d.Body = nil
		return status.BodyTooLarge()
	}
	d.Body.Raw, d.Body.MediaType = text, negotiate.JSON
	return nil
}
