from django.http import HttpRequest, JsonResponse

from tests.contrib.django.project.shop.tasks import add


async def order(request: HttpRequest, queue: str) -> JsonResponse:
    result = await add.using(queue_name=queue).aenqueue(20, 22)
    again = await add.aget_result(result.id)
    return JsonResponse({"id": result.id, "status": again.status})
