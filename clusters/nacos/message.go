package nacos

import "encoding/json"

// Names of classes, as they are in payloads.
const (
	classServerCheck  = "ServerCheckRequest"
	classSetup        = "ConnectionSetupRequest"
	classSetupAck     = "SetupAckRequest"
	classHealthCheck  = "HealthCheckRequest"
	classReset        = "ConnectResetRequest"
	classList         = "ServiceListRequest"
	classSubscribe    = "SubscribeServiceRequest"
	classQuery        = "ServiceQueryRequest"
	classFuzzyWatch   = "NamingFuzzyWatchRequest"
	classNotify       = "NotifySubscriberRequest"
	classFuzzySync    = "NamingFuzzyWatchSyncRequest"
	classFuzzyChange  = "NamingFuzzyWatchChangeNotifyRequest"
	requestSuffix     = "Request"
	responseSuffix    = "Response"
	abilityFuzzyWatch = "fuzzyWatch"
)

// Error codes of responses (com.alibaba.nacos.api.common.ResponseCode, NacosException, model.v2.ErrorCode).
const (
	resultSuccess       = 200
	errorUnregistered   = 301 // the server does not know the connection
	errorParameter      = 400 // a name is not one that the server takes
	errorNoRight        = 403 // also a token that has ended
	errorNotFound       = 404
	errorFuzzyPatterns  = 50310 // too many patterns are watched
	errorFuzzyServices  = 50311 // too many services match
	fuzzyAddService     = "ADD_SERVICE"
	fuzzyDeleteService  = "DELETE_SERVICE"
	watchTypeWatch      = "WATCH"
	serviceKeySeparator = "@@" // of the namespace, the group and the name
)

// request is what the bodies of all naming requests have in common.
type request struct {
	Module    string `json:"module"`
	Namespace string `json:"namespace"`
	Service   string `json:"serviceName"`
	Group     string `json:"groupName"`
}

type listRequest struct {
	request
	PageNo   int    `json:"pageNo"` // from 1
	PageSize int    `json:"pageSize"`
	Selector string `json:"selector"`
}

type subscribeRequest struct {
	request
	Subscribe bool   `json:"subscribe"`
	Clusters  string `json:"clusters"` // "" is all
}

type queryRequest struct {
	request
	Cluster     string `json:"cluster"` // "" is all
	HealthyOnly bool   `json:"healthyOnly"`
	UDPPort     int    `json:"udpPort"`
}

type fuzzyRequest struct {
	request
	Pattern      string   `json:"groupKeyPattern"` // namespace>>group>>service
	Watch        string   `json:"watchType"`
	Initializing bool     `json:"initializing"`
	Received     []string `json:"receivedGroupKeys"`
}

// plainRequest is a request without content of its own.
type plainRequest struct {
	Module string `json:"module"` // "internal"
}

type setupRequest struct {
	plainRequest
	ClientVersion string            `json:"clientVersion"`
	Tenant        string            `json:"tenant"`
	Labels        map[string]string `json:"labels"`
	Abilities     map[string]bool   `json:"abilityTable"`
}

// response is what all responses have in common.
type response struct {
	ResultCode int    `json:"resultCode"`
	ErrorCode  int    `json:"errorCode"`
	Message    string `json:"message"`
	RequestID  string `json:"requestId"`
}

type serverCheckResponse struct {
	ConnectionID string `json:"connectionId"`
}

type listResponse struct {
	Count int      `json:"count"` // of all pages
	Names []string `json:"serviceNames"`
}

type infoResponse struct {
	Info *serviceInfo `json:"serviceInfo"`
}

// serviceInfo is a service and its instances, without those that are not enabled.
type serviceInfo struct {
	Name        string     `json:"name"` // with or without its group and "@@"
	Group       string     `json:"groupName"`
	Hosts       []instance `json:"hosts"`
	LastRefTime int64      `json:"lastRefTime"` // by the clock of the server that sends it, in milliseconds
	// Protected: too few instances are healthy, so all are said to be.
	Protected bool `json:"reachProtectionThreshold"`
}

type instance struct {
	ID        string            `json:"instanceId"`
	IP        string            `json:"ip"` // or a name
	Port      int               `json:"port"`
	Weight    float64           `json:"weight"` // 0 to 10000
	Healthy   bool              `json:"healthy"`
	Enabled   bool              `json:"enabled"`
	Ephemeral bool              `json:"ephemeral"`
	Cluster   string            `json:"clusterName"`
	Metadata  map[string]string `json:"metadata"`

	unreadable bool // the JSON is not of this form, and nothing else is set
}

// UnmarshalJSON takes what can't be read for an instance that can't: it is no reason to know nothing of the others.
func (h *instance) UnmarshalJSON(text []byte) error {
	type plain instance
	var p plain
	if err := json.Unmarshal(text, &p); err != nil {
		*h = instance{unreadable: true}
		return nil
	}
	*h = instance(p)
	return nil
}

// notice is what a server says by itself: a notification of a service, or of names.
type notice struct {
	RequestID  string          `json:"requestId"`
	Namespace  string          `json:"namespace"`
	Service    string          `json:"serviceName"`
	Group      string          `json:"groupName"`
	Info       *serviceInfo    `json:"serviceInfo"`
	Key        string          `json:"serviceKey"` // namespace@@group@@service
	Changed    string          `json:"changedType"`
	Contexts   []fuzzyContext  `json:"contexts"`
	Abilities  map[string]bool `json:"abilityTable"`
	ServerIP   string          `json:"serverIp"`
	ServerPort any             `json:"serverPort"`
}

type fuzzyContext struct {
	Key     string `json:"serviceKey"`
	Changed string `json:"changedType"`
}
