package authorizerpb

import "github.com/hashicorp/go-plugin"

// ProtocolVersion is that of authorizer.proto.
const ProtocolVersion = 1

// PluginName is the name under which go-plugin has the service.
const PluginName = "authorizer"

// Handshake tells a program that it is run as a plugin, and not by a person. It is no
// security: the checksum in the policy is.
var Handshake = plugin.HandshakeConfig{MagicCookieKey: "STELE_AUTHORIZER_PLUGIN", MagicCookieValue: "6f1c2b0e-stele-authorizer"}
