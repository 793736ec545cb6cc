package authorizerpb

import "github.com/hashicorp/go-plugin"

// ProtocolVersion is the version of authorizer.proto.
const ProtocolVersion = 1

// PluginName is the name of the service for go-plugin.
const PluginName = "authorizer"

// Handshake tells a program that it is run as a plugin, and not by a person. It is not a security measure;
// the checksum in the policy is.
var Handshake = plugin.HandshakeConfig{MagicCookieKey: "STELE_AUTHORIZER_PLUGIN", MagicCookieValue: "6f1c2b0e-stele-authorizer"}
