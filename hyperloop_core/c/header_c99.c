/* The public C header alone, as C99 without extensions (-std=c99 -pedantic-errors): all that is
 * asked of this file is that it compiles. */
#include "hyperloop/core/hyperloop.h"

typedef char info_has_no_padding[sizeof(hl_info) == 256 ? 1 : -1];
hl_code (*const hl_header_c99)(hl_group *, hl_ticket, uint64_t *) = hl_wait;
